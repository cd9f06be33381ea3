package versus

import (
	"strings"
	"testing"
)

// The bench runs through on a few rows, PostgreSQL included, and judges what it saw.
func TestWindowsRunsThrough(t *testing.T) {
	r, err := RunWindows(t.Context(), WindowsOptions{Rows: 5000, Customers: 20, Lookups: 20, Repetitions: 1,
		Ingest: 3000, Dir: t.TempDir(), Fleeting: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Queries) != 2 || r.query(askedEngine).Median <= 0 || r.query(askedPostgres).Median <= 0 ||
		r.LookupP99 < r.LookupP50 || r.SliceBytes <= 0 || r.Slicing <= 0 {
		t.Errorf("%+v", r)
	}
	var out strings.Builder
	r.Print(&out)
	for _, want := range []string{"5.0 k rows", "PostgreSQL", "one customer's month", "while slices are made"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
