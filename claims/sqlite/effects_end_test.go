package sqlite

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// enders are statements that are allowed, fail, and end the whole transaction.
var enders = map[string]func(*EffectTx) error{
	"OR ROLLBACK": func(tx *EffectTx) error {
		_, err := tx.Exec(`INSERT OR ROLLBACK INTO once VALUES ('had')`)
		return err
	},
	"OR ROLLBACK, by update": func(tx *EffectTx) error {
		_, err := tx.Exec(`UPDATE OR ROLLBACK once SET what = 'had'`)
		return err
	},
	"ON CONFLICT ROLLBACK": func(tx *EffectTx) error {
		_, err := tx.Exec(`INSERT INTO strict VALUES ('had')`)
		return err
	},
	"RAISE(ROLLBACK)": func(tx *EffectTx) error {
		_, err := tx.Exec(`INSERT INTO guarded VALUES ('x')`)
		return err
	},
	"by a query": func(tx *EffectTx) error {
		return tx.QueryRow(`INSERT OR ROLLBACK INTO once VALUES ('had') RETURNING what`).Scan(new(string))
	},
	"by rows that are read late": func(tx *EffectTx) error {
		rows, err := tx.Query(`SELECT abs(CASE what WHEN 'more' THEN -9223372036854775807 - 1 ELSE 1 END) FROM once ORDER BY rowid`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		// such an error of rows ends no transaction; one of the disk would, which this stands for
		_, e := tx.c.sql.ExecContext(context.Background(), "ROLLBACK")
		return errors.Join(rows.Err(), e)
	},
	"in the middle of a script": func(tx *EffectTx) error {
		_, err := tx.Exec(`INSERT OR ROLLBACK INTO once VALUES ('had'); INSERT INTO charges VALUES ('the rest of the script')`)
		return err
	},
}

// TestEffectWhoseTransactionEndsEarly: what comes after is refused, nothing is kept, and a repeat runs the work.
func TestEffectWhoseTransactionEndsEarly(t *testing.T) {
	s := newShop(t)
	alter(t, s.store.cfg.Path, `CREATE TABLE once (what TEXT UNIQUE); INSERT INTO once VALUES ('had'), ('more');
		CREATE TABLE strict (what TEXT UNIQUE ON CONFLICT ROLLBACK); INSERT INTO strict VALUES ('had');
		CREATE TABLE guarded (what TEXT);
		CREATE TRIGGER guard BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'not here'); END;`)
	for name, end := range enders {
		ignored := errors.New("the work's own")
		for _, own := range []error{nil, ignored} {
			_, _, err := s.Do(t.Context(), s.effect(name), func(_ context.Context, tx *EffectTx) ([]byte, error) {
				if _, err := tx.Exec(`INSERT INTO charges VALUES ('before')`); err != nil {
					t.Error(err)
				}
				if err := end(tx); err == nil {
					t.Errorf("%s: no error", name)
				}
				for range 2 {
					if _, err := tx.Exec(`INSERT INTO charges VALUES ('after')`); !errors.Is(err, ErrEffectOver) {
						t.Errorf("%s: exec afterwards: %v", name, err)
					}
					if err := tx.QueryRow(`INSERT INTO charges VALUES ('after') RETURNING what`).Scan(new(string)); !errors.Is(err, ErrEffectOver) {
						t.Errorf("%s: query afterwards: %v", name, err)
					}
				}
				return nil, own
			})
			if own == nil && !errors.Is(err, errEndedByWork) || own != nil && !errors.Is(err, own) || errors.Is(err, claims.ErrEffectPerhaps) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := s.rows(t); len(got) > 0 {
			t.Fatalf("%s: kept %q", name, got)
		}
		ran := 0
		for _, replay := range []bool{false, true} {
			_, replayed, err := s.Do(t.Context(), s.effect(name), func(context.Context, *EffectTx) ([]byte, error) {
				ran++
				return nil, nil
			})
			if err != nil || replayed != replay || ran != 1 {
				t.Errorf("%s: repeated: replayed %v, ran %d, %v", name, replayed, ran, err)
			}
		}
	}
}

// TestEffectGoesOnAfterAnErrorOfAStatement that ends the statement alone, also beside open rows of one that wrote.
func TestEffectGoesOnAfterAnErrorOfAStatement(t *testing.T) {
	s := newShop(t)
	alter(t, s.store.cfg.Path, `CREATE TABLE once (what TEXT UNIQUE); INSERT INTO once VALUES ('had')`)
	_, _, err := s.Do(t.Context(), s.effect("a"), func(_ context.Context, tx *EffectTx) ([]byte, error) {
		rows, err := tx.Query(`INSERT INTO charges VALUES ('a'), ('b') RETURNING what`)
		if err != nil {
			return nil, err
		}
		for _, text := range []string{`INSERT INTO once VALUES ('had')`, `INSERT OR FAIL INTO once VALUES ('had')`, `INSERT INTO nowhere VALUES (1)`, `SELEC`} {
			if _, err := tx.Exec(text); err == nil || errors.Is(err, ErrEffectOver) {
				t.Errorf("%s: %v", text, err)
			}
			if rows, err := tx.Query(text); err == nil || errors.Is(err, ErrEffectOver) {
				t.Errorf("query %s: %v, %v", text, rows, err)
			}
		}
		var changed int
		if err := tx.QueryRow(`SELECT changes()`).Scan(&changed); err != nil {
			t.Error(err)
		}
		_, err = tx.Exec(`INSERT INTO charges VALUES ('c')`)
		return nil, errors.Join(err, rows.Close())
	})
	if got := s.rows(t); err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEffectThatADeferredConstraintRefuses at COMMIT is surely not written, and the connection goes on.
func TestEffectThatADeferredConstraintRefuses(t *testing.T) {
	s := newShop(t)
	alter(t, s.store.cfg.Path, `CREATE TABLE parents (id INTEGER PRIMARY KEY);
		CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
	for _, parent := range []string{"", `INSERT INTO parents VALUES (1)`} {
		_, replayed, err := s.Do(t.Context(), s.effect("a"), func(_ context.Context, tx *EffectTx) ([]byte, error) {
			_, err := tx.Exec(`INSERT INTO children VALUES (1); INSERT INTO charges VALUES ('a'); ` + parent)
			return nil, err
		})
		if refused := parent == ""; replayed || (err != nil) != refused || errors.Is(err, claims.ErrEffectPerhaps) || constraint(err) != refused {
			t.Errorf("with %q: replayed %v, %v", parent, replayed, err)
		}
		if got := s.rows(t); (len(got) == 0) != (parent == "") {
			t.Errorf("with %q: %q", parent, got)
		}
	}
}
