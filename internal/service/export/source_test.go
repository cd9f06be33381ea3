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
