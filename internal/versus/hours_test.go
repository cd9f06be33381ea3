package versus

import (
	"strings"
	"testing"
)

// The bench runs through on a few rows, on both stores, and judges what it saw.
func TestHoursRunsThrough(t *testing.T) {
	r, err := RunHours(t.Context(), HoursOptions{Rows: 5000, PostgresRows: 3000, Customers: 20, Repetitions: 1,
		Ingest: 2000, Dir: t.TempDir(), Fleeting: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Stores) != 2 || r.Alone <= 0 || r.Beside <= 0 {
		t.Fatalf("%+v", r)
	}
	for _, s := range r.Stores {
		if s.AtRest.Count != 10 || s.AtRest.Median <= 0 || s.After <= 0 || s.Rate <= 0 {
			t.Errorf("%+v", s)
		}
	}
	var out strings.Builder
	r.Print(&out)
	for _, want := range []string{"5.0 k", "PostgreSQL store, ingest", "right after", "≤ 20 ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
