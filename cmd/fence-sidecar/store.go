package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/sqlite"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// checkTenant refuses what cannot be a tenant.
func checkTenant(t string) error { return claims.Key{Tenant: t, Call: "x"}.Check() }

// openStore is the only place that names a concrete store.
func openStore(ctx context.Context, c *Config) (claims.Backend, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: c.Store.Path, AllowTmpfs: c.Store.AllowTmpfs, Margin: c.Lease.Margin})
}

// configFlag is shared by the commands that need the configuration.
type configFlag struct {
	Config string `required:"" short:"c" env:"FENCE_CONFIG" placeholder:"FILE" help:"Configuration file (docs/configuration.md)."`
}

func (f configFlag) open(ctx context.Context) (*Config, claims.Backend, error) {
	c, err := loadConfig(f.Config)
	if err != nil {
		return nil, nil, err
	}
	s, err := openStore(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return c, s, nil
}

type storeCmd struct {
	Migrate migrateCmd `cmd:"" help:"Create or upgrade the store's schema; makes the realm and the first fingerprint key."`
	Status  statusCmd  `cmd:"" help:"Open the store as run does and print its realm and keys' ids."`

	AccountHash accountHashCmd `cmd:"" help:"Read an app's credential from standard input and print its credentialHash for this store."`
}

type migrateCmd struct{ configFlag }

// Run migrates. It may run beside serving sidecars, and twice at once.
func (m migrateCmd) Run(ctx context.Context) error {
	c, err := loadConfig(m.Config)
	if err != nil {
		return err
	}
	report, err := sqlite.Migrate(ctx, c.Store.Path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if len(report.Applied) == 0 {
		fmt.Fprintf(os.Stdout, "%s: nothing to do, the schema is at %d\n", report.Path, report.To)
		return nil
	}
	fmt.Fprintf(os.Stdout, "%s: schema %d to %d (%s)\n", report.Path, report.From, report.To, strings.Join(report.Applied, ", "))
	return nil
}

type statusCmd struct{ configFlag }

// Run opens the store with every check that run makes.
func (s statusCmd) Run(ctx context.Context) error {
	_, b, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	k := b.Keyring()
	fmt.Fprintf(os.Stdout, "realm %s\nfingerprint key %s (of %d)\n", k.Realm, k.Current, len(k.Keys))
	return nil
}

type accountHashCmd struct{ configFlag }

// Run prints the keyed hash that maps an app's credential to an account. The credential comes by standard input, so that
// it stands in no list of processes.
func (a accountHashCmd) Run(ctx context.Context) error {
	_, b, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	in, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<10))
	credential := strings.TrimRight(string(in), "\r\n")
	if err != nil || credential == "" {
		return errors.New("no credential on standard input")
	}
	fmt.Fprintln(os.Stdout, gateways.AccountHash(b.Keyring().Realm, credential))
	return nil
}
