package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrSetting is what every *SettingError is.
var ErrSetting = errors.New("the store's settings are not safe")

// SettingError names a setting under which the store's guarantees do not hold.
type SettingError struct {
	Setting string // as PostgreSQL or the Config calls it
	Value   string // "" for the URL's: it may hold the password
	Want    string
}

func (e *SettingError) Error() string {
	if strings.HasPrefix(e.Setting, inURL) {
		return fmt.Sprintf("%s: want %s", e.Setting, e.Want)
	}
	return fmt.Sprintf("%s is %q: want %s", e.Setting, e.Value, e.Want)
}

// Is makes errors.Is(err, ErrSetting) true.
func (e *SettingError) Is(target error) bool { return target == ErrSetting }

// safe refuses settings under which an acknowledged commit may be gone after a crash. A reload can change them any time.
func safe(h *header) error {
	switch {
	case h.settings[0] != "on":
		return &SettingError{"fsync", h.settings[0], "on (a commit is on the disk before it is acknowledged)"}
	case h.settings[1] != "on":
		return &SettingError{"full_page_writes", h.settings[1], "on (a page that was half written is repaired)"}
	case h.settings[2] == "off", h.settings[2] == "local":
		return &SettingError{"synchronous_commit", h.settings[2], "on (a commit waits for the disk and for the standbys)"}
	}
	return nil
}

// flushed refuses what a standby's operating system could still lose after it confirmed (PostgreSQL's documentation of
// synchronous_commit).
func (h *header) flushed() error {
	if h.settings[2] == "remote_write" {
		return &SettingError{"synchronous_commit", h.settings[2],
			"on or remote_apply (a standby confirms what is on its disk), or store.failover: may-lose"}
	}
	return nil
}

func unconfirmed(standbys string) error {
	return &SettingError{"synchronous_standby_names", standbys,
		"a list of which every standby confirms, such as `b` or `2 (b, c)`; or accept in writing that a failover may lose " +
			"acknowledged claims (store.failover: may-lose)"}
}

// inspect checks what does not change while the store runs. It connects without asking for a server that takes writes, so
// that a refusal names the reason.
func (s *Store) inspect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pc, err := connConfig(s.cfg.URL)
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, pc.ConnConfig)
	if err != nil { // perhaps all are read-only: ask one why
		pc.ConnConfig.ValidateConnect = nil
		first := err
		if c, err = pgx.ConnectConfig(ctx, pc.ConnConfig); err != nil {
			return fmt.Errorf("postgres store: %w", first)
		}
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is open
	if err := server(ctx, c); err != nil {
		return err
	}
	for _, check := range []func(context.Context, *pgx.Conn) error{
		s.checkSchema, s.checkColumns, s.checkGrants, s.checkSeeded, s.checkProof,
	} {
		if err := check(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// oldest is the first version of PostgreSQL that is known to work.
const oldest = 130000

// server refuses servers that cannot keep a store at all. Only names and values of settings are in the errors.
func server(ctx context.Context, c *pgx.Conn) error {
	var recovery bool
	var version int
	h := header{}
	var readOnly, isolation, encoding string
	err := c.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('server_version_num')::int,
		current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
		current_setting('default_transaction_read_only'), current_setting('default_transaction_isolation'),
		current_setting('server_encoding')`).
		Scan(&recovery, &version, &h.settings[0], &h.settings[1], &h.settings[2], &readOnly, &isolation, &encoding)
	switch {
	case err != nil:
		return fmt.Errorf("postgres store: settings: %w", err)
	case recovery:
		return &SettingError{"pg_is_in_recovery()", "true", "a primary (this server is a standby)"}
	case version < oldest:
		return &SettingError{"server_version_num", fmt.Sprint(version), "PostgreSQL 13 or later"}
	case encoding != "UTF8":
		return &SettingError{"server_encoding", encoding, "UTF8 (a database that was made with ENCODING 'UTF8')"}
	case readOnly != "off":
		return &SettingError{"default_transaction_read_only", readOnly, "off (for the server, the database and the role)"}
	case isolation != "read committed":
		return &SettingError{"default_transaction_isolation", isolation, "read committed (for the server, the database and the role)"}
	}
	return safe(&h)
}

// checkProof warns of a role that can never show that a failover lost nothing: a standby's name is in primary_conninfo.
func (s *Store) checkProof(ctx context.Context, c *pgx.Conn) error {
	if s.cfg.MayLose {
		return nil
	}
	var role string
	var has bool
	err := c.QueryRow(ctx, `SELECT current_user::text, pg_has_role(current_user, 'pg_read_all_settings', 'USAGE')`).Scan(&role, &has)
	if err != nil {
		return fmt.Errorf("postgres store: privileges: %w", err)
	}
	if !has {
		s.cfg.Log.Warn("the store's role cannot prove that a failover lost nothing: each one is taken for a loss, with a quarantine",
			"role", role, "do", "GRANT pg_read_all_settings TO "+pgx.Identifier{role}.Sanitize())
	}
	return nil
}
