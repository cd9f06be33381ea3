package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
)

func a(s string) amount.Amount {
	v, err := amount.Parse(s)
	if err != nil {
		panic(err)
	}
	return v
}

// limited compiles a plan of one quota.
func limited(q Quota) *Limit {
	q.Meter = "calls"
	return Compile(&Plan{Name: "pro", Quotas: []Quota{q}}).Limit("calls")
}

func TestJudge(t *testing.T) {
	hard := limited(Quota{Limit: a("10")})
	soft := limited(Quota{Limit: a("10"), Soft: true, Multiplier: a("2")})
	open := limited(Quota{Limit: a("10"), Soft: true})
	fine := limited(Quota{Limit: a("0.000000000003"), Soft: true, Multiplier: a("1.5")})
	none := limited(Quota{Limit: a("0"), Soft: true, Multiplier: a("2")})
	ignored := limited(Quota{Limit: a("10"), Multiplier: a("2")})
	for _, c := range []struct {
		name      string
		l         *Limit
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
		{"not even of what does not fit a number: the counter refuses that", open, "99999999999999999999999999", "1",
			Over},
		{"a cap refuses what does not fit a number", soft, "99999999999999999999999999", "1", Refused},
		{"so does a hard limit", hard, "99999999999999999999999999", "1", Refused},
		{"a cap between two amounts is the lower one", fine, "0.000000000003", "0.000000000001", Over},
		{"and not the higher", fine, "0.000000000004", "0.000000000001", Refused},
		{"twice nothing is nothing", none, "0", "0.000000000001", Refused},
		{"a hard limit has no use for a multiplier", ignored, "10", "1", Refused},
	} {
		if got := c.l.Judge(a(c.used), a(c.add)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestStanding(t *testing.T) {
	hard := limited(Quota{Limit: a("10")})
	soft := limited(Quota{Limit: a("10"), Soft: true, Multiplier: a("2")})
	for _, c := range []struct {
		l              *Limit
		used, left, is string
	}{
		{hard, "0", "10", "within"}, {hard, "9.5", "0.5", "within"}, {hard, "10", "0", "exhausted"},
		{hard, "12", "0", "exhausted"},
		{soft, "9.999999999999", "0.000000000001", "within"}, {soft, "10", "0", "over"},
		{soft, "19.999999999999", "0", "over"}, {soft, "20", "0", "exhausted"},
	} {
		if got := c.l.Remaining(a(c.used)).String(); got != c.left {
			t.Errorf("used %s: %s left, want %s", c.used, got, c.left)
		}
		if got := c.l.Standing(a(c.used)).String(); got != c.is {
			t.Errorf("used %s: %s, want %s", c.used, got, c.is)
		}
	}
}

func TestDue(t *testing.T) {
	plain := limited(Quota{Limit: a("10"), Thresholds: []uint16{50, 80, 100, 150}})
	fine := limited(Quota{Limit: a("0.000000000003"), Thresholds: []uint16{50}})
	nothing := limited(Quota{Limit: a("0"), Thresholds: []uint16{80, 100}})
	for _, c := range []struct {
		l        *Limit
		used     string
		reported uint16
		want     string
	}{
		{plain, "4.999999999999", 0, "[]"}, {plain, "5", 0, "[50]"}, {plain, "5", 50, "[]"}, {plain, "8", 50, "[80]"},
		{plain, "100", 0, "[50 80 100 150]"}, {plain, "10", 80, "[100]"}, {plain, "1", 100, "[]"},
		// Half of three smallest parts lies between one and two of them: one does not reach it.
		{fine, "0.000000000001", 0, "[]"}, {fine, "0.000000000002", 0, "[50]"},
		{nothing, "0", 0, "[]"}, {nothing, "0.000000000001", 0, "[80 100]"},
	} {
		if got := fmt.Sprint(c.l.Due(a(c.used), c.reported, nil)); got != c.want {
			t.Errorf("%s used, reported %d: %s, want %s", c.used, c.reported, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Quota{Meter: "calls", Limit: a("10"), Soft: true, Multiplier: a("1.000000000001"),
		Thresholds: DefaultThresholds}
	many := make([]Quota, MaxQuotas+1)
	for _, c := range []struct {
		path   string
		change func(p *Plan)
	}{
		{"", func(*Plan) {}},
		{"", func(p *Plan) { p.Quotas = nil }},
		{"", func(p *Plan) {
			p.Quotas[0].Limit, p.Quotas[0].Multiplier, p.Quotas[0].Thresholds = amount.Zero, MaxMultiplier,
				[]uint16{MaxThreshold}
		}},
		{"name", func(p *Plan) { p.Name = "" }},
		{"name", func(p *Plan) { p.Name = "a/b" }},
		{"quotas", func(p *Plan) { p.Quotas = many }},
		{"prices", func(p *Plan) { p.Prices = make([]byte, MaxPrices+1) }},
		{"quotas[0].meter", func(p *Plan) { p.Quotas[0].Meter = "" }},
		{"quotas[1].meter", func(p *Plan) { p.Quotas = append(p.Quotas, good) }},
		{"quotas[0].limit", func(p *Plan) { p.Quotas[0].Limit = a("-1") }},
		{"quotas[0].limit", func(p *Plan) { p.Quotas[0].Limit = MaxLimit }},
		{"quotas[0].hard_cap_multiplier", func(p *Plan) { p.Quotas[0].Multiplier = a("0.999999999999") }},
		{"quotas[0].hard_cap_multiplier", func(p *Plan) { p.Quotas[0].Multiplier = a("-2") }},
		{"quotas[0].hard_cap_multiplier", func(p *Plan) { p.Quotas[0].Multiplier = a("1000.1") }},
		{"quotas[0].thresholds", func(p *Plan) { p.Quotas[0].Thresholds = []uint16{0} }},
		{"quotas[0].thresholds", func(p *Plan) { p.Quotas[0].Thresholds = []uint16{80, 80} }},
		{"quotas[0].thresholds", func(p *Plan) { p.Quotas[0].Thresholds = []uint16{1001} }},
		{"quotas[0].thresholds", func(p *Plan) { p.Quotas[0].Thresholds = []uint16{1, 2, 3, 4, 5, 6, 7, 8, 9} }},
	} {
		p := Plan{Name: "pro", Quotas: []Quota{good}}
		c.change(&p)
		bad := p.Check()
		switch {
		case c.path == "" && bad != nil:
			t.Errorf("%+v: %v, want it to pass", p, bad)
		case c.path != "" && (bad == nil || bad.Fields[0].Path != c.path):
			t.Errorf("%+v: %v, want %s to be at fault", p, bad, c.path)
		}
	}
}

// Of a day that is over, or as far as it is over, only the plan at its end counts; plans that are still to come stay.
func TestASettledScheduleKeepsThePlanAtTheEndOfEachDay(t *testing.T) {
	at := func(day, hour int) calendar.Micros {
		return calendar.FromTime(time.Date(2026, 11, day, hour, 0, 0, 0, time.UTC))
	}
	s := Schedule{
		{at(1, 0), "a"}, {at(1, 5), "b"}, {at(1, 23), "c"}, {at(2, 0), "d"}, {at(4, 1), "e"}, {at(4, 2), "f"},
		{at(4, 9), "g"},
		{at(5, 1), "h"}, {at(5, 2), "i"},
	}
	for now, want := range map[calendar.Micros]Schedule{
		at(4, 5): {{at(1, 23), "c"}, {at(2, 0), "d"}, {at(4, 2), "f"}, {at(4, 9), "g"}, {at(5, 1), "h"},
			{at(5, 2), "i"}},
		at(1, 0): s,
		at(9, 0): {{at(1, 23), "c"}, {at(2, 0), "d"}, {at(4, 9), "g"}, {at(5, 2), "i"}},
	} {
		got := s.Settled(now)
		if !got.Equal(want) {
			t.Errorf("at %s: %v, want %v", now, got, want)
		}
		if got.At(now) != s.At(now) || got.Until(now) != s.Until(now) {
			t.Errorf("at %s: %v is in force until %s, was %v until %s", now, got.At(now), got.Until(now), s.At(now),
				s.Until(now))
		}
	}
}
