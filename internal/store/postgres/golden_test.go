package postgres

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"github.com/tallystick/tallystick/internal/store/storetest"
)

// newGolden has a golden store made instead of only reading those that are there: make golden.
var newGolden = flag.String("golden", "", "make the golden store of this name from the present schema")

const goldenDir = "testdata/golden"

// Given the rows that an earlier build left in a database of an earlier schema, when this build migrates it and opens
// it, then it shows what was shown then, knows every key, and takes more.
func TestGoldenStores(t *testing.T) {
	if *newGolden != "" {
		makeGolden(t, *newGolden)
	}
	copies, err := filepath.Glob(filepath.Join(goldenDir, "*.copy"))
	if err != nil || len(copies) == 0 {
		t.Fatalf("there are no golden stores: %v", err)
	}
	for _, path := range copies {
		for name, major := range majors {
			t.Run(filepath.Base(path)+" "+name, func(t *testing.T) {
				t.Parallel()
				url, err := major.server(t).Create("")
				if err != nil {
					t.Fatal(err)
				}
				loadGolden(t, url, path)
				want, err := os.ReadFile(strings.TrimSuffix(path, ".copy") + ".txt")
				if err != nil {
					t.Fatal(err)
				}
				clock := storetest.NewClock()
				clock.Advance(24 * time.Hour)
				s := mustOpen(t, Options{URL: url, Now: clock.Now})
				if diff := cmp.Diff(string(want), storetest.GoldenText(t, s)); diff != "" {
					t.Errorf("it does not show what it did:\n%s", diff)
				}
				storetest.UseGolden(t, s, clock)
				mustClose(t, s)
				s = mustOpen(t, Options{URL: url, Now: clock.Now, SkipMigrations: true})
				storetest.UseGolden(t, s, clock)
				mustClose(t, s)
			})
		}
	}
}

// A golden store is text that COPY wrote, one table after the other, below the version of its schema.
const goldenHead = "-- schema version %d\n"

func makeGolden(t *testing.T, name string) {
	url := migrated(t)
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: url, Now: clock.Now})
	storetest.FillGolden(t, s, clock)
	text := storetest.GoldenText(t, s)
	mustClose(t, s)
	c := connected(t, url)
	var out bytes.Buffer
	out.WriteString("-- schema version " + answers(t, c, "SELECT max(version_id) FROM tallystick.schema_versions")[0] +
		"\n")
	for _, table := range answers(t, c,
		`SELECT table_name FROM information_schema.tables WHERE table_schema = 'tallystick'
		AND table_type = 'BASE TABLE' AND table_name <> 'schema_versions' ORDER BY table_name`) {
		columns := strings.Join(answers(t, c, `SELECT quote_ident(column_name) FROM information_schema.columns
			WHERE table_schema = 'tallystick' AND table_name = '`+table+`' ORDER BY ordinal_position`), ", ")
		fmt.Fprintf(&out, "COPY tallystick.%s (%s) FROM stdin;\n", table, columns)
		// Sorted as text, so that the file changes only with what it holds.
		query := fmt.Sprintf("COPY (SELECT * FROM tallystick.%s AS r ORDER BY r::text) TO STDOUT", table)
		if _, err := c.CopyTo(context.Background(), &out, query); err != nil {
			t.Fatal(err)
		}
		out.WriteString("\\.\n")
	}
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for suffix, b := range map[string][]byte{".txt": []byte(text), ".copy": out.Bytes()} {
		if err := os.WriteFile(filepath.Join(goldenDir, name+suffix), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// answers are the first column of what a question finds.
func answers(t *testing.T, c *pgconn.PgConn, question string) (out []string) {
	t.Helper()
	r := c.ExecParams(context.Background(), question, nil, nil, nil, nil).Read()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, row := range r.Rows {
		out = append(out, string(row[0]))
	}
	return out
}

var goldenTable = regexp.MustCompile(`(?ms)^(COPY [^\n]* FROM stdin);\n(.*?)^\\\.\n`)

// loadGolden makes the schema as it was and copies the rows into it.
func loadGolden(t *testing.T, url, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var version int64
	if _, err := fmt.Sscanf(string(b), goldenHead, &version); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	err = migrateBy(context.Background(), url, func(p *goose.Provider) error {
		_, err := p.UpTo(context.Background(), version)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c := connected(t, url)
	for _, table := range goldenTable.FindAllSubmatch(b, -1) {
		if _, err := c.CopyFrom(context.Background(), bytes.NewReader(table[2]), string(table[1])); err != nil {
			t.Fatalf("%s: %v", table[1], err)
		}
	}
}

func connected(t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
