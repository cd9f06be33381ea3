package export

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// elsewhere reads a store as another process does: by records, a few at a time.
type elsewhere struct {
	fromStore
	atOnce uint64
}

func (e elsewhere) Rows(ctx context.Context, l *Ledger, after uint64, k Kind, f Filter, fn func(Row) error) (uint64,
	error) {
	f.Tenant = l.Tenant
	return Lines(ctx, e.store, k, f, after, min(l.Head, after+e.atOnce),
		func(line []byte) error { return fn(Record(line)) })
}

// Given rows that pass through another process as records, then every format is the same to the byte as from the store
// itself.
func TestRecordsOfAnotherProcessAreTheSame(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 20)
	w.send("bolt", 5)
	for _, kind := range []Kind{Events, Changes} {
		for _, format := range []Format{NDJSON, CSV, Parquet} {
			here, there := t.TempDir(), t.TempDir()
			o := Options{Format: format, Kind: kind, PartRows: 7}
			for dir, s := range map[string]Source{here: FromStore(w.store),
				there: elsewhere{fromStore{w.store, viewRows}, 3}} {
				o.Dir = dir
				if _, err := Run(t.Context(), s, o); err != nil {
					t.Fatal(err)
				}
			}
			for _, tenant := range []string{"acme", "bolt"} {
				if a, b := joined(t, filepath.Join(here, tenant)),
					joined(t, filepath.Join(there, tenant)); format != Parquet &&
					!bytes.Equal(a, b) || len(a) == 0 {
					t.Errorf("%s of %s as %s:\n%s\n%s", kind, tenant, format, a, b)
				}
			}
			var a, b bytes.Buffer
			for out, s := range map[*bytes.Buffer]Source{&a: FromStore(w.store),
				&b: elsewhere{fromStore{w.store, viewRows},
					3}} {
				if _, err := Run(t.Context(), s, Options{Format: format, Kind: kind, Stream: out}); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Errorf("%s as a stream of %s differ", kind, format)
			}
		}
	}
	_, err := Lines(t.Context(), w.store, Events, Filter{Tenant: "acme", Meter: "none"}, 0, 9,
		func([]byte) error { return nil })
	if !problem.Is(err, problem.NotFound) {
		t.Errorf("a meter that is not there: %v", err)
	}
}

// Given more rows than a part may have, then every part but the last has exactly so many, whatever the source hands on
// at once, and the next run goes on behind them.
func TestPartsHaveAsManyRowsAsAsked(t *testing.T) {
	w := newWorld(t)
	for name, s := range map[string]Source{"store": FromStore(w.store), "views": fromStore{w.store, 3},
		"process": elsewhere{fromStore{w.store, viewRows}, 5}} {
		o := Options{Format: NDJSON, Kind: Events, Filter: Filter{Tenant: "acme"}, Dir: t.TempDir(), PartRows: 4}
		for range 2 {
			w.send("acme", 10)
			if _, err := Run(t.Context(), s, o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		names, err := filepath.Glob(filepath.Join(o.Dir, "acme", "*"))
		if err != nil {
			t.Fatal(err)
		}
		total, short := 0, 0
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			rows := bytes.Count(b, []byte("\n"))
			if total += rows; rows > o.PartRows {
				t.Errorf("%s: %s has %d rows", name, filepath.Base(n), rows)
			} else if rows < o.PartRows {
				short++
			}
		}
		if want := len(w.rows("acme", Events)); total != want || short > 2 {
			t.Errorf("%s: %d parts, %d of them short, have %d rows of %d", name, len(names), short, total, want)
		}
	}
}

// joined is the content of a folder's files, whose cut into parts may differ, without repeated headers.
func joined(t *testing.T, dir string) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if header, rest, ok := bytes.Cut(b, []byte("\n")); i > 0 && ok && bytes.HasPrefix(header, []byte("tenant,")) {
			b = rest
		}
		out = append(out, b...)
	}
	return out
}
