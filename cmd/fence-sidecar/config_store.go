package main

import (
	"fmt"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Values of store.kind, store.failover and externalTokens.
const (
	storeSQLite   = "sqlite"
	storePostgres = "postgres"

	failoverSynchronous = "synchronous"
	failoverMayLose     = "may-lose"

	externalOff = "off"
	externalOn  = "without-double-charge-protection"
)

// StoreConfig names the store.
type StoreConfig struct {
	Kind string `yaml:"kind"`
	// Path and AllowTmpfs are SQLite's.
	Path       string `yaml:"path"`
	AllowTmpfs bool   `yaml:"allowTmpfs"`
	// URL and what follows are PostgreSQL's. The URL holds a password, so it never stands in the file.
	URL         gateways.Secret `yaml:"url"`
	MigrateURL  gateways.Secret `yaml:"migrateURL"`
	Schema      string          `yaml:"schema"`
	Connections int             `yaml:"connections"`
	Failover    string          `yaml:"failover"`
	Role        string          `yaml:"role"`
	AppRole     string          `yaml:"appRole"`
}

func (c *Config) checkStore() error {
	s := &c.Store
	switch s.Kind {
	case storeSQLite:
		if s.Path == "" {
			return c.bad("store.path", "", "the path of the SQLite file, on a local disk")
		}
		return c.onlyOf(storePostgres, map[string]bool{
			"url": !s.URL.IsZero(), "migrateURL": !s.MigrateURL.IsZero(), "role": s.Role != "", "appRole": s.AppRole != "",
		})
	case storePostgres:
		return c.checkPostgres()
	}
	return c.bad("store.kind", s.Kind, storeSQLite+", "+storePostgres)
}

// onlyOf refuses fields of the other kind: whoever sets one means that store.
func (c *Config) onlyOf(kind string, set map[string]bool) error {
	for field, is := range set {
		if is {
			return c.errorf("store.%s is for store.kind: %s only", field, kind)
		}
	}
	return nil
}

func (c *Config) checkPostgres() error {
	s := &c.Store
	if err := c.onlyOf(storeSQLite, map[string]bool{"path": s.Path != "", "allowTmpfs": s.AllowTmpfs}); err != nil {
		return err
	}
	for _, name := range []struct{ field, value string }{{"schema", s.Schema}, {"role", s.Role}, {"appRole", s.AppRole}} {
		if len(name.value) > 63 || strings.ContainsRune(name.value, 0) || name.field == "schema" && name.value == "" {
			return c.bad("store."+name.field, name.value, "a PostgreSQL name of at most 63 bytes")
		}
	}
	switch {
	case s.URL.IsZero():
		return c.bad("store.url", "", "env or file: where the connection URL of PostgreSQL is, such as postgres://user:password@host/database")
	case s.URL.Env != "" && s.URL.File != "":
		return c.bad("store.url", s.URL.Env, "either env or file, not both")
	case s.MigrateURL.Env != "" && s.MigrateURL.File != "":
		return c.bad("store.migrateURL", s.MigrateURL.Env, "either env or file, not both")
	case s.Connections < 3 || s.Connections > 100:
		return c.bad("store.connections", s.Connections, "3 to 100")
	case s.Failover != failoverSynchronous && s.Failover != failoverMayLose:
		return c.bad("store.failover", s.Failover, fmt.Sprintf("%s, %s", failoverSynchronous, failoverMayLose))
	}
	return nil
}

func (c *Config) checkKeys() error {
	if c.Keys.Env != "" && c.Keys.File != "" {
		return c.bad("keys", c.Keys.Env, "either env or file, not both")
	}
	return nil
}
