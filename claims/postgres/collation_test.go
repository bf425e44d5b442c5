package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// byteRules are those of the suite in which two keys could be taken for one.
var byteRules = []string{"record/keys-are-bytes", "lease/scopes-are-bytes"}

// TestKeysNeverMerge: whatever the collation of the database, keys are compared byte by byte.
func TestKeysNeverMerge(t *testing.T) {
	server := pgtest.Shared(t)
	for i, how := range []string{
		"lc_collate 'C' lc_ctype 'C'",
		"lc_collate 'C.UTF-8' lc_ctype 'C.UTF-8'",
		"lc_collate 'C' lc_ctype 'C' locale_provider icu icu_locale 'und-u-ks-level1'", // without case and accents, for order only
	} {
		t.Run(how, func(t *testing.T) {
			name := fmt.Sprintf("collated_%d", i)
			ok(t, server.Exec(t.Context(), "create database "+name+" template template0 encoding 'UTF8' "+how))
			t.Cleanup(func() { ok(t, server.Exec(context.Background(), "drop database "+name+" with (force)")) })
			cfg := migrate(t, strings.Replace(server.URL(), "/postgres?", "/"+name+"?", 1), "fence")
			h := rules(t, cfg)
			for _, r := range claimstest.Rules() {
				if slices.Contains(byteRules, r.Name) {
					r.Check(t, h)
				}
			}
		})
	}
}

// TestNoDatabaseFolds: no collation of a whole database takes two texts for one, so that TestKeysNeverMerge need not try one;
// a column's is refused (see TestColumnsOfOtherTypesAreRefused).
func TestNoDatabaseFolds(t *testing.T) {
	server := pgtest.Shared(t)
	err := server.Exec(t.Context(), "create database folding template template0 encoding 'UTF8' deterministic false")
	e, is := errors.AsType[*pgconn.PgError](err)
	if !is || e.Code != "42601" { // syntax_error: CREATE DATABASE has no such option
		t.Fatalf("a database whose collation folds: %v, want a syntax error: if there can be one, it is to be refused by name", err)
	}
}
