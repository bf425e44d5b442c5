package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres"
	"github.com/fence-sidecar/fence-sidecar/claims/sqlite"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// checkTenant refuses what cannot be a tenant.
func checkTenant(t string) error { return claims.Key{Tenant: t, Call: "x"}.Check() }

// openStore and migrateCmd are the only places that name a concrete store.
func openStore(ctx context.Context, c *Config, log *slog.Logger) (claims.Backend, error) {
	if c.Store.Kind == storePostgres {
		url, err := c.Store.URL.Value()
		if err != nil {
			return nil, fmt.Errorf("store.url: %w", err)
		}
		return postgres.Open(ctx, postgres.Config{
			URL: url, Schema: c.Store.Schema, Connections: c.Store.Connections, MaxLease: c.Lease.MaxTTL, Margin: c.Lease.Margin,
			MayLose: c.Store.Failover == failoverMayLose, Log: log,
		})
	}
	return sqlite.Open(ctx, sqlite.Config{Path: c.Store.Path, AllowTmpfs: c.Store.AllowTmpfs, Margin: c.Lease.Margin})
}

// awaitStore opens the store that a sidecar serves from. A database that does not answer is waited for, as it is later on;
// what waiting cannot mend (a setting, the schema) is an error at once. waits is called before each pause.
func awaitStore(ctx context.Context, c *Config, log *slog.Logger, waits func() error) (claims.Backend, error) {
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		s, err := openStore(ctx, c, log)
		if err == nil || c.Store.Kind != storePostgres || ctx.Err() != nil || !postgres.Unavailable(err) {
			return s, err
		}
		if err := waits(); err != nil {
			return nil, err
		}
		log.Warn("the store does not answer yet", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
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
	s, err := openStore(ctx, c, slog.Default())
	if err != nil {
		return nil, nil, fmt.Errorf("store: %w", err)
	}
	return c, s, nil
}

// openSealed opens the store as run works with it, and says what its answers are sealed with.
func (f configFlag) openSealed(ctx context.Context) (*Config, claims.Backend, *keys.Ring, error) {
	c, b, err := f.open(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	r, err := c.ring(b)
	if err != nil {
		b.Close()
		return nil, nil, nil, err
	}
	return c, keys.Sealed(b, r), r, nil
}

// schemaKnown is the newest schema that this program knows, of the configured kind of store.
func (c *Config) schemaKnown() int {
	if c.Store.Kind == storePostgres {
		return postgres.Schema()
	}
	return sqlite.Schema()
}

type storeCmd struct {
	Migrate migrateCmd `cmd:"" help:"Create or upgrade the store's schema; makes the realm and the store's own key set."`
	Status  statusCmd  `cmd:"" help:"Open the store as run does and print its realm and keys' ids."`

	DeclareLoss declareLossCmd `cmd:"" help:"Say that the database perhaps lost what it had acknowledged: quarantine, and look-ups before sends. After going back to an old primary or an old copy (PostgreSQL)."`
	AccountHash accountHashCmd `cmd:"" help:"Read an app's credential from standard input and print its credentialHash for this store."`
}

type migrateCmd struct{ configFlag }

// Run migrates. It may run beside serving sidecars, and twice at once.
func (m migrateCmd) Run(ctx context.Context) error {
	c, err := loadConfig(m.Config)
	if err != nil {
		return err
	}
	if c.Store.Kind == storePostgres {
		return migratePostgres(ctx, &c.Store)
	}
	report, err := sqlite.Migrate(ctx, c.Store.Path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	printMigration(report.Path, report.From, report.To, report.Applied)
	return nil
}

// migratePostgres uses the URL of the schema's owner where there is one.
func migratePostgres(ctx context.Context, s *StoreConfig) error {
	from, field := s.MigrateURL, "store.migrateURL"
	if from.IsZero() {
		from, field = s.URL, "store.url"
	}
	url, err := from.Value()
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	report, err := postgres.Migrate(ctx, postgres.MigrateConfig{URL: url, Schema: s.Schema, SidecarRole: s.Role, AppRole: s.AppRole})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	printMigration("schema "+s.Schema, report.From, report.To, report.Applied)
	return nil
}

func printMigration(what string, from, to int, applied []string) {
	if len(applied) == 0 {
		fmt.Fprintf(os.Stdout, "%s: nothing to do, the schema is at %d\n", what, to)
		return
	}
	fmt.Fprintf(os.Stdout, "%s: schema %d to %d (%s)\n", what, from, to, strings.Join(applied, ", "))
}

type statusCmd struct{ configFlag }

// Run opens the store with every check that run makes.
func (s statusCmd) Run(ctx context.Context) error {
	c, b, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	r, err := c.ring(b)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "realm %s\nkeys %s\n", b.Realm(), ringWords(r))
	if p, ok := b.(*postgres.Store); ok {
		return printPostgres(ctx, p)
	}
	return nil
}

func printPostgres(ctx context.Context, p *postgres.Store) error {
	s, err := p.Status(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	w := os.Stdout
	fmt.Fprintf(w, "PostgreSQL %s, schema %s, system %s, timeline %d\n", s.Server, s.Schema, s.SystemID, s.Timeline)
	switch {
	case s.MayLose:
		fmt.Fprintln(w, "failover: may lose acknowledged claims, as store.failover accepts")
	case s.Unproven:
		fmt.Fprintln(w, "failover: unproven: this server was promoted without loss and has no synchronous standby since; give it one")
	default:
		fmt.Fprintf(w, "failover: loses nothing on %s\n", strings.Join(s.Confirming, ", "))
	}
	if s.Loss != nil {
		fmt.Fprintf(w, "losses: %d; writes from %s to %s may be missing\n", s.Era, s.Loss.From.Wall.Format(time.RFC3339), s.Loss.At.Wall.Format(time.RFC3339))
	}
	if s.Quarantine > 0 {
		fmt.Fprintf(w, "quarantine: nothing is granted or claimed for another %s\n", s.Quarantine.Round(time.Second))
	}
	return nil
}

type declareLossCmd struct {
	configFlag
	Yes bool `required:"" help:"Nothing is sent until the quarantine is over; for a week every call that the store does not know is looked up first."`
}

// Run begins a new era by the operator's word.
func (d declareLossCmd) Run(ctx context.Context) error {
	_, b, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	p, ok := b.(*postgres.Store)
	if !ok {
		return errors.New("only a PostgreSQL store can notice a loss")
	}
	if err := p.DeclareLoss(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return printPostgres(ctx, p)
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
	fmt.Fprintln(os.Stdout, gateways.AccountHash(b.Realm(), credential))
	return nil
}
