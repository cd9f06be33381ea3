package httpkit

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]struct {
		d     time.Duration
		canon string
	}{
		"48h": {48 * time.Hour, "48h"}, "5s": {5 * time.Second, "5s"}, "90m": {90 * time.Minute, "1h30m"},
		"7d":    {168 * time.Hour, "168h"},
		"1d12h": {36 * time.Hour, "36h"}, "0": {0, "0s"}, "0d": {0, "0s"}, "1.5h": {90 * time.Minute, "1h30m"},
		"100ms":  {100 * time.Millisecond, "100ms"},
		"1h0m5s": {time.Hour + 5*time.Second, "1h0m5s"}, "10m": {10 * time.Minute, "10m"},
		"10h": {10 * time.Hour, "10h"}, "1µs": {time.Microsecond, "1µs"},
	} {
		d, err := ParseDuration(text)
		if err != nil || d != want.d || FormatDuration(d) != want.canon {
			t.Errorf("%s: %v %v, written %s, want %s", text, d, err, FormatDuration(d), want.canon)
		}
	}
	for _, text := range []string{"", "5", "-5s", "+5s", "d", "-1d", "1d-1h", "1d+1h", "1.5d", "1dd", "1d1", "h", "5 s",
		"106752d", "99999999999d", "9223372036s999999h", "106751d24h"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q was read as %s", text, d)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"48h", "7d", "1d12h30m", "1.5h", "0", "-1s", "d", "106751d23h47m16.854775807s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is %s", text, d)
		}
		if again, err := ParseDuration(FormatDuration(d)); err != nil || again != d {
			t.Fatalf("%q is %s, written %s, read %s, %v", text, d, FormatDuration(d), again, err)
		}
	})
}
