package calendar

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMonthOfAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Micros(rapid.Int64Range(int64(MinMicros), int64(MaxMicros)).Draw(t, "micros"))
		want := m.Time()
		got := MonthOf(m)
		if got.String() != want.Format("2006-01") {
			t.Fatalf("MonthOf(%s) = %s", want, got)
		}
		if m < got.Start() || m >= got.End() {
			t.Fatalf("%s lies outside its month %s..%s", m, got.Start(), got.End())
		}
	})
}

func TestMonthEdges(t *testing.T) {
	for _, s := range []string{"1970-01", "2000-02", "2024-02", "2026-12", "9999-12"} {
		m, err := ParseMonth(s)
		if err != nil {
			t.Fatal(err)
		}
		if m.String() != s {
			t.Errorf("%s reads back as %s", s, m)
		}
		if MonthOf(m.Start()) != m || MonthOf(m.End()-1) != m {
			t.Errorf("%s does not hold its own edges", s)
		}
	}
	if end := (MonthOf(MaxMicros)).End(); end-1 != MaxMicros {
		t.Errorf("the last month ends at %d", end)
	}
}

func TestParseMonthRefuses(t *testing.T) {
	for _, s := range []string{"", "2026", "2026-1", "2026-13", "2026-00", "1969-12", "2026/11", "20a6-11",
		"2026-11-01", " 2026-11"} {
		if m, err := ParseMonth(s); err == nil {
			t.Errorf("%q was read as %s", s, m)
		}
	}
}

func TestMicrosTruncate(t *testing.T) {
	at := time.Date(2026, 11, 15, 2, 10, 0, 123456789, time.UTC)
	if got := FromTime(at).String(); got != "2026-11-15T02:10:00.123456Z" {
		t.Errorf("got %s", got)
	}
}
