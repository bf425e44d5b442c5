package gateways

import (
	"net"
	"net/url"
	"strings"
)

// OAuth2 is how an account gets its tokens: client credentials (RFC 6749, section 4.4).
type OAuth2 struct {
	// TokenPath is the token endpoint at BaseURL; TokenURL one elsewhere. One of them.
	TokenPath string `yaml:"tokenPath"`
	TokenURL  string `yaml:"tokenURL"`
	// ClientID and ClientSecret are sent by HTTP Basic authentication.
	ClientID     Secret   `yaml:"clientID"`
	ClientSecret Secret   `yaml:"clientSecret"`
	Scopes       []string `yaml:"scopes"`
}

func (p *problems) oauth2(path string, o *OAuth2) {
	if o == nil {
		return
	}
	p.want((o.TokenPath == "") != (o.TokenURL == ""), path, o.TokenPath, "tokenPath or tokenURL, one of them")
	p.want(o.TokenPath == "" || plainTarget(o.TokenPath), path+".tokenPath", o.TokenPath, "a path such as /v1/oauth2/token")
	if o.TokenURL != "" {
		u, err := url.Parse(o.TokenURL)
		ok := err == nil && u.Hostname() != "" && u.User == nil && u.Fragment == "" && (u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()))
		p.want(ok, path+".tokenURL", "", "https://host/path; http on loopback only, as the client's secret goes there")
	}
	p.want((o.ClientID.Env == "") != (o.ClientID.File == ""), path+".clientID", "", "env or file, one of them")
	p.want((o.ClientSecret.Env == "") != (o.ClientSecret.File == ""), path+".clientSecret", "", "env or file, one of them")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// URL is the token endpoint of a gateway's account.
func (o *OAuth2) URL(g *Gateway) string {
	if o.TokenURL != "" {
		return o.TokenURL
	}
	return strings.TrimSuffix(g.BaseURL, "/") + o.TokenPath
}
