package main

import (
	"net"
	"net/url"
	"strings"
)

// Values of reconcile.sweeper.
const (
	sweeperOn  = "on"
	sweeperOff = "off"
)

// WebhooksConfig says how the listener for gateways' notices is reached.
type WebhooksConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// PublicURL is the beginning of the addresses that gateways are told.
	PublicURL string `yaml:"publicURL"`
}

func (c *Config) checkWebhooks() error {
	w, listen := c.Webhooks, c.Listen.Webhooks
	if c.Reconcile.Sweeper != sweeperOn && c.Reconcile.Sweeper != sweeperOff {
		return c.bad("reconcile.sweeper", c.Reconcile.Sweeper, sweeperOn+", "+sweeperOff)
	}
	if listen == "" {
		if w != (WebhooksConfig{}) {
			return c.bad("listen.webhooks", "", "where notices are taken, if webhooks are configured")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return c.bad("listen.webhooks", listen, "[host]:port, or empty for none")
	}
	for field, other := range map[string]string{"listen.any": c.Listen.Any, "listen.control": c.Listen.Control, "listen.telemetry": c.Listen.Telemetry} {
		if listen == other && !strings.HasSuffix(listen, ":0") {
			return c.bad("listen.webhooks", listen, "an address of its own; this one is that of "+field)
		}
	}
	if (w.Cert == "") != (w.Key == "") {
		return c.bad("webhooks.key", w.Key, "cert and key together, or none")
	}
	if w.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(w.PublicURL)
	switch {
	case err != nil:
		return c.errorf("webhooks.publicURL: it cannot be parsed: a URL such as https://hooks.example.com")
	case u.User != nil, u.Hostname() == "", u.RawQuery != "", u.ForceQuery, u.Fragment != "", u.Scheme != "https" && u.Scheme != "http":
		return c.bad("webhooks.publicURL", u.Redacted(), "https://host[:port][/path]")
	}
	return nil
}
