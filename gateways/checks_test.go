package gateways

import (
	"strings"
	"testing"
)

func checked(set func(*Checks)) error {
	g := Stripe()
	g.Checks = &Checks{
		Live: []string{"sk_live_.*"}, Currency: "eur", Amount: "50", Vars: map[string]string{"card": "x"},
		Setup:  []*Sample{{Target: "/v1/customers", Save: map[string]string{"customer": "/id"}}},
		Charge: &Sample{Target: "/v1/charges", Body: `{"a":{amount},"b":"{customer}{card}{unique}"}`},
		Empty:  &Sample{Target: "/v1/charges/{object}/capture"},
	}
	set(g.Checks)
	return g.Validate()
}

func TestChecksAreValidated(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*Checks)
		want string
	}{
		"sound":                 {func(*Checks) {}, ""},
		"no charge":             {func(c *Checks) { c.Charge = nil }, "checks.charge"},
		"a name that is not":    {func(c *Checks) { c.Charge.Body = "{nothing}" }, "checks.charge.body"},
		"object in the charge":  {func(c *Checks) { c.Charge.Body = "{object}" }, "checks.charge.body"},
		"saved too late":        {func(c *Checks) { c.Setup[0].Body = "{customer}" }, "checks.setup[0].body"},
		"no pointer":            {func(c *Checks) { c.Setup[0].Save["x"] = "id" }, "checks.setup[0].save.x"},
		"no path":               {func(c *Checks) { c.Charge.Target = "v1" }, "checks.charge.target"},
		"method":                {func(c *Checks) { c.Charge.Method = "post" }, "checks.charge.method"},
		"pattern":               {func(c *Checks) { c.Live = []string{"("} }, "checks.live"},
		"host":                  {func(c *Checks) { c.LiveHosts = []string{"https://x"} }, "checks.liveHosts"},
		"header":                {func(c *Checks) { c.Header = []HeaderValue{{Name: "a b"}} }, "checks.header"},
		"line break":            {func(c *Checks) { c.Charge.Header = []HeaderValue{{Name: "A", Value: "a\nb"}} }, "checks.charge"},
		"variation":             {func(c *Checks) { c.Declined = &Variation{Vars: map[string]string{"other": "1"}} }, "checks.declined.vars"},
		"variation of amount":   {func(c *Checks) { c.Declined = &Variation{Vars: map[string]string{"amount": "1"}} }, ""},
		"name in a line's text": {func(c *Checks) { c.Failed = &Variation{Header: []HeaderValue{{Name: "A", Value: "{gone}"}}} }, "checks.failed"},
	} {
		err := checked(c.set)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLive(t *testing.T) {
	c := &Checks{Live: []string{`(sk|rk)_live_.*`}, LiveHosts: []string{"api.x.com", "*-live.x.com"}}
	for host, want := range map[string]bool{
		"api.x.com": true, "API.X.COM:443": true, "a.api.x.com": false, "shop-live.x.com": true, "live.x.com": false, "shop-live.x.com.evil": false,
	} {
		if got := c.LiveHost(host); got != want {
			t.Errorf("LiveHost(%s) = %v", host, got)
		}
	}
	for cred, want := range map[string]bool{"sk_live_1": true, "rk_live_1": true, "sk_test_1": false, "x sk_live_1": true, "sk_live_1\n": true, " sk_live_1": true,
		"Bearer sk_live_1": true, "Basic c2tfbGl2ZV8xOg==": true, "my_sk_live_1": false} {
		if got := c.LiveCredential(cred); got != want {
			t.Errorf("LiveCredential(%s) = %v", cred, got)
		}
	}
}

// The built-in gateways' checks name an amount, another one, and what tells live from test.
func TestBuiltinChecks(t *testing.T) {
	for _, g := range []*Gateway{Stripe(), Adyen(), PayPal(), CheckoutCom(), GoCardless()} {
		if err := g.Validate(); err != nil {
			t.Error(err)
			continue
		}
		c := g.Checks
		if c == nil || c.Amount == "" || c.Other == "" || c.Other == c.Amount || len(c.Live)+len(c.LiveHosts) == 0 {
			t.Errorf("%s: checks are missing or say too little", g.Name)
			continue
		}
		if _, ok := g.Match(c.Charge.Method, strings.NewReplacer("{", "", "}", "").Replace(c.Charge.Target)); !ok {
			t.Errorf("%s: the charge is of no route", g.Name)
		}
	}
}

func TestFill(t *testing.T) {
	got, missing := Fill(`{"a":{n},"b":"{s}","c":{},"d":{gone}}`, map[string]string{"n": "1", "s": `q"`}, func(v string) string { return strings.ReplaceAll(v, `"`, `\"`) })
	if got != `{"a":1,"b":"q\"","c":{},"d":{gone}}` || len(missing) != 1 || missing[0] != "gone" {
		t.Errorf("Fill = %s, %v", got, missing)
	}
}
