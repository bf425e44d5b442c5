package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Config is the one configuration file. Every field is in docs/configuration.md; a test compares the two.
type Config struct {
	// Mode is enforce or shadow.
	Mode  string      `yaml:"mode"`
	Store StoreConfig `yaml:"store"`
	// Keys is where the key set is; none: the store's own.
	Keys    gateways.Secret `yaml:"keys"`
	Listen  ListenConfig    `yaml:"listen"`
	Tenants []string        `yaml:"tenants"`
	Lease   LeaseConfig     `yaml:"lease"`
	// ExternalTokens says whether applications may present tokens that they count themselves.
	ExternalTokens string          `yaml:"externalTokens"`
	Attempts       int             `yaml:"attempts"`
	Wait           time.Duration   `yaml:"wait"`
	Drain          time.Duration   `yaml:"drain"`
	Breaker        BreakerConfig   `yaml:"breaker"`
	Reconcile      ReconcileConfig `yaml:"reconcile"`
	Webhooks       WebhooksConfig  `yaml:"webhooks"`
	Events         EventsConfig    `yaml:"events"`
	Effects        EffectsConfig   `yaml:"effects"`
	Operators      []Operator      `yaml:"operators"`
	Log            LogConfig       `yaml:"log"`
	Gateways       []GatewayConfig `yaml:"gateways"`

	file string
}

// ListenConfig names the listeners. A gateway's own port is with the gateway.
type ListenConfig struct {
	Any       string `yaml:"any"`
	Control   string `yaml:"control"`
	Socket    string `yaml:"socket"`
	Telemetry string `yaml:"telemetry"`
	// Webhooks is served by the command reconcile only.
	Webhooks string `yaml:"webhooks"`
}

// LeaseConfig holds the lease's times.
type LeaseConfig struct {
	TTL    time.Duration `yaml:"ttl"`
	Margin time.Duration `yaml:"margin"`
	MaxTTL time.Duration `yaml:"maxTTL"`
}

// BreakerConfig holds the circuit breakers' settings.
type BreakerConfig struct {
	Failures uint32        `yaml:"failures"`
	Open     time.Duration `yaml:"open"`
}

// ReconcileConfig holds the sweeper's settings.
type ReconcileConfig struct {
	Interval      time.Duration `yaml:"interval"`
	Batch         int           `yaml:"batch"`
	LookupTimeout time.Duration `yaml:"lookupTimeout"`
	// Sweeper is on or off.
	Sweeper string `yaml:"sweeper"`
}

// EffectsConfig holds what the sidecar does for applications' fenced effects.
type EffectsConfig struct {
	Retention time.Duration `yaml:"retention"`
}

// LogConfig holds the log's settings.
type LogConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// GatewayConfig takes one gateway into service: a built-in one by name, or a file's. What is set here wins.
type GatewayConfig struct {
	Use            string                 `yaml:"use"`
	File           string                 `yaml:"file"`
	Name           string                 `yaml:"name"`
	Listen         string                 `yaml:"listen"`
	BaseURL        string                 `yaml:"baseURL"`
	Hosts          []string               `yaml:"hosts"`
	CABundle       string                 `yaml:"caBundle"`
	ClientCert     string                 `yaml:"clientCert"`
	ClientKey      string                 `yaml:"clientKey"`
	EgressProxy    *gateways.EgressProxy  `yaml:"egressProxy"`
	Tokens         string                 `yaml:"tokens"`
	Untagged       string                 `yaml:"untagged"`
	AttemptTimeout time.Duration          `yaml:"attemptTimeout"`
	SettleAfter    time.Duration          `yaml:"settleAfter"`
	KeyRetention   time.Duration          `yaml:"keyRetention"`
	BodyLimit      int64                  `yaml:"bodyLimit"`
	AnswerLimit    int64                  `yaml:"answerLimit"`
	Routes         map[string]RouteConfig `yaml:"routes"`
	Accounts       []gateways.Account     `yaml:"accounts"`
	Credentials    string                 `yaml:"credentials"`
	Rotating       *bool                  `yaml:"rotating"`
	// CallKey takes the call key from a request without Fence-Key; off by default.
	CallKey *gateways.CallKey `yaml:"callKey"`
}

// RouteConfig sets one route's limits.
type RouteConfig struct {
	AttemptTimeout time.Duration `yaml:"attemptTimeout"`
	SettleAfter    time.Duration `yaml:"settleAfter"`
	BodyLimit      int64         `yaml:"bodyLimit"`
	AnswerLimit    int64         `yaml:"answerLimit"`
}

// defaults is what holds where the file says nothing.
func defaults() Config {
	return Config{
		Mode:           modeEnforce,
		Store:          StoreConfig{Kind: storeSQLite, Schema: "fence", Connections: 6, Failover: failoverSynchronous},
		Listen:         ListenConfig{Any: "127.0.0.1:8181", Control: "127.0.0.1:8182", Telemetry: ":9090"},
		Tenants:        []string{"default"},
		Lease:          LeaseConfig{TTL: 30 * time.Second, Margin: time.Second, MaxTTL: time.Minute},
		ExternalTokens: externalOff,
		Attempts:       5,
		Wait:           10 * time.Second,
		Breaker:        BreakerConfig{Failures: 20, Open: 10 * time.Second},
		Reconcile:      ReconcileConfig{Interval: 30 * time.Second, Batch: 100, LookupTimeout: 20 * time.Second, Sweeper: sweeperOn},
		Effects:        EffectsConfig{Retention: 24 * time.Hour},
		Log:            LogConfig{Level: "info", Format: "json"},
	}
}

// loadConfig reads and checks a configuration file. Its errors are one line: file, field, value, what is allowed.
func loadConfig(file string) (*Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := defaults()
	c.file = file
	if err := gateways.Decode(b, &c); err != nil {
		return nil, c.errorf("%w", err)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *Config) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", c.file, fmt.Errorf(format, args...))
}

// bad says that a field's value is not allowed.
func (c *Config) bad(field string, value any, allowed string) error {
	return c.errorf("%s: %q is not allowed: %s", field, fmt.Sprint(value), allowed)
}

func (c *Config) check() error {
	for _, check := range []func() error{c.checkStore, c.checkKeys, c.checkListen, c.checkTimes, c.checkTenants, c.checkWebhooks, c.checkEvents, c.checkOperators, c.checkLog, c.checkGateways} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkListen() error {
	for field, addr := range map[string]string{"listen.any": c.Listen.Any, "listen.control": c.Listen.Control} {
		if addr == "" {
			continue
		}
		if err := c.loopback(field, addr); err != nil {
			return err
		}
	}
	if c.Listen.Control == c.Listen.Any && c.Listen.Any != "" && !strings.HasSuffix(c.Listen.Any, ":0") {
		return c.bad("listen.control", c.Listen.Control, "an address of its own; this one is that of listen.any")
	}
	if _, _, err := net.SplitHostPort(c.Listen.Telemetry); c.Listen.Telemetry != "" && err != nil {
		return c.bad("listen.telemetry", c.Listen.Telemetry, "[host]:port, or empty for none")
	}
	return nil
}

// loopback demands a loopback address: whoever reaches a data listener can move money.
func (c *Config) loopback(field, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	if err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return c.bad(field, addr, "a loopback address and port, such as 127.0.0.1:8181")
	}
	return nil
}

func (c *Config) checkTimes() error {
	for _, d := range []struct {
		field    string
		value    time.Duration
		min, max time.Duration
	}{
		{"lease.ttl", c.Lease.TTL, time.Second, 10 * time.Minute},
		{"lease.margin", c.Lease.Margin, c.Lease.TTL / 100, c.Lease.TTL / 3},
		{"lease.maxTTL", c.Lease.MaxTTL, c.Lease.TTL, 10 * time.Minute},
		{"wait", c.Wait, 0, 10 * time.Minute},
		{"drain", c.Drain, 0, time.Hour},
		{"breaker.open", c.Breaker.Open, time.Millisecond, time.Hour},
		{"reconcile.interval", c.Reconcile.Interval, 100 * time.Millisecond, time.Hour},
		{"effects.retention", c.Effects.Retention, time.Hour, 365 * 24 * time.Hour},
		{"reconcile.lookupTimeout", c.Reconcile.LookupTimeout, 100 * time.Millisecond, 10 * time.Minute},
	} {
		if d.value < d.min || d.value > d.max {
			return c.bad(d.field, d.value, fmt.Sprintf("%s to %s", d.min, d.max))
		}
	}
	switch {
	case c.Mode != modeEnforce && c.Mode != modeShadow:
		return c.bad("mode", c.Mode, modeEnforce+", "+modeShadow)
	case c.ExternalTokens != externalOff && c.ExternalTokens != externalOn:
		return c.bad("externalTokens", c.ExternalTokens, externalOff+", "+externalOn)
	case c.Attempts < 1 || c.Attempts > 20:
		return c.bad("attempts", c.Attempts, "1 to 20")
	case c.Breaker.Failures < 1:
		return c.bad("breaker.failures", c.Breaker.Failures, "1 or more")
	case c.Reconcile.Batch < 1 || c.Reconcile.Batch > 10000:
		return c.bad("reconcile.batch", c.Reconcile.Batch, "1 to 10000")
	}
	return nil
}

func (c *Config) checkTenants() error {
	if len(c.Tenants) == 0 {
		return c.bad("tenants", "", "at least one tenant")
	}
	for i, t := range c.Tenants {
		if err := checkTenant(t); err != nil {
			return c.bad("tenants", t, err.Error())
		}
		if strings.HasPrefix(t, claims.ShadowPrefix) || c.Mode == modeShadow && len(claims.ShadowPrefix+t) > claims.MaxKey {
			return c.bad("tenants", t, fmt.Sprintf("no tenant that begins with %s, nor in mode shadow one of over %d bytes", claims.ShadowPrefix, claims.MaxKey-len(claims.ShadowPrefix)))
		}
		if slices.Contains(c.Tenants[:i], t) {
			return c.bad("tenants", t, "each tenant once")
		}
	}
	return nil
}

func (c *Config) checkLog() error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return c.bad("log.level", c.Log.Level, "debug, info, warn, error")
	}
	if c.Log.Format != "json" && c.Log.Format != "text" {
		return c.bad("log.format", c.Log.Format, "json, text")
	}
	return nil
}

func (c *Config) checkGateways() error {
	if len(c.Gateways) == 0 {
		return c.bad("gateways", "", "at least one gateway")
	}
	taken := map[string]string{c.Listen.Any: "listen.any", c.Listen.Control: "listen.control", c.Listen.Telemetry: "listen.telemetry", c.Listen.Webhooks: "listen.webhooks"}
	for i := range c.Gateways {
		g := &c.Gateways[i]
		field := fmt.Sprintf("gateways[%d]", i)
		if (g.Use == "") == (g.File == "") {
			return c.bad(field+".use", g.Use, "either use (a built-in gateway) or file (your own), not both")
		}
		if g.Listen != "" {
			if err := c.loopback(field+".listen", g.Listen); err != nil {
				return err
			}
			if other := taken[g.Listen]; other != "" && !strings.HasSuffix(g.Listen, ":0") {
				return c.bad(field+".listen", g.Listen, "an address of its own; this one is that of "+other)
			}
			taken[g.Listen] = field + ".listen"
		}
	}
	_, err := c.registry()
	return err
}

// registry makes the configured gateways.
func (c *Config) registry() (*gateways.Registry, error) {
	var gs []*gateways.Gateway
	for i := range c.Gateways {
		g, err := c.gateway(&c.Gateways[i])
		if err != nil {
			return nil, c.errorf("gateways[%d]: %w", i, err)
		}
		gs = append(gs, g)
	}
	r, err := gateways.NewRegistry(gs...)
	if err != nil {
		return nil, c.errorf("gateways: %w", err)
	}
	return r, nil
}

func (c *Config) gateway(gc *GatewayConfig) (*gateways.Gateway, error) {
	g, err := c.declared(gc)
	if err != nil {
		return nil, err
	}
	if err := c.asDeclared(gc, g); err != nil {
		return nil, err
	}
	set(&g.Name, gc.Name)
	set(&g.BaseURL, gc.BaseURL)
	set(&g.CABundle, gc.CABundle)
	set(&g.ClientCert, gc.ClientCert)
	set(&g.ClientKey, gc.ClientKey)
	set(&g.EgressProxy, gc.EgressProxy)
	set(&g.Tokens, gc.Tokens)
	set(&g.Untagged, gc.Untagged)
	set(&g.AttemptTimeout, gc.AttemptTimeout)
	set(&g.SettleAfter, gc.SettleAfter)
	set(&g.KeyRetention, gc.KeyRetention)
	set(&g.BodyLimit, gc.BodyLimit)
	set(&g.AnswerLimit, gc.AnswerLimit)
	if len(gc.Hosts) > 0 {
		g.Hosts = gc.Hosts
	}
	if len(gc.Accounts) > 0 {
		g.Accounts = gc.Accounts
	}
	set(&g.Credentials, gc.Credentials)
	if gc.Rotating != nil {
		g.Rotating = *gc.Rotating
	}
	if gc.CallKey != nil {
		g.CallKey = gc.CallKey
		if own := gateways.DeclaredCallKey(gc.Use); own != nil && strings.EqualFold(gc.CallKey.Header, own.Header) && len(gc.CallKey.Refuse) == 0 {
			g.CallKey = own
		}
	}
	for name, rc := range gc.Routes {
		r := routeOf(g, name)
		if r == nil {
			return nil, fmt.Errorf("routes: %q is not a route of gateway %s", name, g.Name)
		}
		set(&r.AttemptTimeout, rc.AttemptTimeout)
		set(&r.SettleAfter, rc.SettleAfter)
		set(&r.BodyLimit, rc.BodyLimit)
		set(&r.AnswerLimit, rc.AnswerLimit)
	}
	if g.Rotating && len(g.Accounts) != 1 {
		return nil, fmt.Errorf("gateway %s: accounts: one account is needed, as its tokens change and name none", g.Name)
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if why := g.Loosened(); why != "" {
		return nil, fmt.Errorf("gateway %s: %s", g.Name, why)
	}
	return g, nil
}

// asDeclared keeps the facts of a built-in gateway at its own address: what it documents can be taken more carefully, not
// less. At another address (a sandbox, a test) the settings are free.
func (c *Config) asDeclared(gc *GatewayConfig, g *gateways.Gateway) error {
	if gc.Use == "" || !ownAddress(gc.BaseURL, g.Hosts) {
		return nil
	}
	if gc.KeyRetention > g.KeyRetention {
		return fmt.Errorf("keyRetention: %q is not allowed: at most %s, which %s documents", gc.KeyRetention, g.KeyRetention, g.Name)
	}
	if gc.SettleAfter != 0 && gc.SettleAfter < g.SettleAfter {
		return fmt.Errorf("settleAfter: %q is not allowed: at least %s", gc.SettleAfter, g.SettleAfter)
	}
	for _, name := range slices.Sorted(maps.Keys(gc.Routes)) {
		if after := gc.Routes[name].SettleAfter; after != 0 && after < g.SettleAfter {
			return fmt.Errorf("routes.%s.settleAfter: %q is not allowed: at least %s", name, after, g.SettleAfter)
		}
	}
	return nil
}

// ownAddress reports whether a base URL is one of the gateway's own, however it is spelt.
func ownAddress(base string, hosts []string) bool {
	u, err := url.Parse(base)
	if base == "" || err != nil {
		return true // its default, or an error that the validation names
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return slices.Contains(hosts, host)
}

func set[T comparable](to *T, v T) {
	if v != *new(T) {
		*to = v
	}
}

func routeOf(g *gateways.Gateway, name string) *gateways.Route {
	for _, r := range g.Routes {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// declared is the gateway as its author declared it. A file is looked for beside the configuration file.
func (c *Config) declared(gc *GatewayConfig) (*gateways.Gateway, error) {
	if gc.File != "" {
		path := gc.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(c.file), path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return gateways.Load(b, path)
	}
	var names []string
	for _, g := range gateways.Builtin() {
		if g.Name == gc.Use {
			return g, nil
		}
		names = append(names, g.Name)
	}
	return nil, fmt.Errorf("use: %q is no built-in gateway; built in: %s", gc.Use, strings.Join(names, ", "))
}
