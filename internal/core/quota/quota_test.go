package quota

import (
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
)

func a(s string) amount.Amount {
	v, err := amount.Parse(s)
	if err != nil {
		panic(err)
	}
	return v
}

func TestJudge(t *testing.T) {
	hard := Limit{Limit: a("10")}
	soft := Limit{Limit: a("10"), Soft: true, HardCap: a("20")}
	open := Limit{Limit: a("10"), Soft: true}
	for _, c := range []struct {
		name      string
		l         Limit
		used, add string
		want      Ruling
	}{
		{"exactly the limit fits", hard, "9", "1", Within},
		{"a hair over does not", hard, "9", "1.000000000001", Refused},
		{"a full hard limit refuses", hard, "10", "0.000000000001", Refused},
		{"nothing always fits", hard, "11", "0", Within},
		{"giving back always fits", hard, "11", "-1", Within},
		{"a soft limit keeps what crosses it", soft, "9", "2", Over},
		{"up to its cap", soft, "19", "1", Over},
		{"and refuses past it", soft, "19", "1.1", Refused},
		{"one fact larger than the cap", soft, "0", "21", Refused},
		{"no cap, no refusal", open, "10000", "1", Over},
		{"what does not fit a number is refused", open, "99999999999999999999999999", "1", Refused},
	} {
		if got := c.l.Judge(a(c.used), a(c.add)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestRemaining(t *testing.T) {
	l := Limit{Limit: a("10")}
	for used, want := range map[string]string{"0": "10", "9.5": "0.5", "10": "0", "12": "0"} {
		if got := l.Remaining(a(used)).String(); got != want {
			t.Errorf("used %s: %s left, want %s", used, got, want)
		}
	}
}
