package calendar

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func zone(t interface{ Fatal(...any) }, name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func moment(t *testing.T, text string) Micros {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return FromTime(at)
}

// Each case writes the cuts as the zone's clock shows them.
func TestCutAtChangesOfOffset(t *testing.T) {
	for _, c := range []struct{ name, zone, from, to, step, want string }{
		{"Berlin goes forward at 2", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T05:00:00+02:00", "hour",
			"00:00+01 01:00+01 03:00+02 04:00+02 05:00+02"},
		{"Berlin goes back at 3", "Europe/Berlin", "2026-10-25T01:00:00+02:00", "2026-10-25T04:00:00+01:00", "hour",
			"01:00+02 02:00+02 02:00+01 03:00+01 04:00+01"},
		{"New York goes forward at 2", "America/New_York", "2026-03-08T00:00:00-05:00", "2026-03-08T04:00:00-04:00",
			"hour", "00:00-05 01:00-05 03:00-04 04:00-04"},
		{"New York goes back at 2", "America/New_York", "2026-11-01T00:00:00-04:00", "2026-11-01T03:00:00-05:00",
			"hour", "00:00-04 01:00-04 01:00-05 02:00-05 03:00-05"},
		{"Lord Howe goes forward by half an hour at 2", "Australia/Lord_Howe", "2026-10-04T01:00:00+10:30",
			"2026-10-04T04:00:00+11:00", "hour", "01:00+1030 02:30+11 03:00+11 04:00+11"},
		{"Lord Howe goes back by half an hour at 2", "Australia/Lord_Howe", "2026-04-05T00:00:00+11:00",
			"2026-04-05T03:00:00+10:30", "hour", "00:00+11 01:00+11 01:30+1030 02:00+1030 03:00+1030"},
		{"Kolkata's hours begin at half past in UTC", "Asia/Kolkata", "2026-11-15T00:00:00Z", "2026-11-15T02:00:00Z",
			"hour", "05:30+0530 06:00+0530 07:00+0530 07:30+0530"},
		{"Kathmandu's at a quarter", "Asia/Kathmandu", "2026-11-15T00:00:00Z", "2026-11-15T01:30:00Z", "hour",
			"05:45+0545 06:00+0545 07:00+0545 07:15+0545"},
		{"days of 23 hours", "Europe/Berlin", "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00", "day",
			"00:00+01 00:00+01 00:00+02 00:00+02"},
		{"days of 25 hours", "America/New_York", "2026-10-31T12:00:00-04:00", "2026-11-02T12:00:00-05:00", "day",
			"12:00-04 00:00-04 00:00-05 12:00-05"},
		{"a day without a midnight", "Africa/Cairo", "2026-04-23T00:00:00+02:00", "2026-04-25T00:00:00+03:00", "day",
			"00:00+02 01:00+03 00:00+03"},
		{"a midnight that comes twice", "America/Havana", "2026-10-31T00:00:00-04:00", "2026-11-02T00:00:00-05:00",
			"day", "00:00-04 00:00-04 00:00-05"},
		{"a day that is left out", "Pacific/Apia", "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00", "day",
			"00:00-10 00:00+14 00:00+14"},
		{"a day that is over, begun again for an hour", "America/St_Johns", "2010-11-06T00:00:00-02:30",
			"2010-11-08T00:00:00-03:30", "day", "00:00-0230 00:00-0230 00:00-0330"},
		{"months around a change", "Europe/Berlin", "2026-10-01T00:00:00+02:00", "2026-12-15T00:00:00+01:00", "month",
			"00:00+02 00:00+01 00:00+01 00:00+01"},
		{"minutes over a change", "Europe/Berlin", "2026-03-29T01:58:30+01:00", "2026-03-29T03:01:10+02:00", "minute",
			"01:58+01 01:59+01 03:00+02 03:01+02 03:01+02"},
		{"minutes of an offset of seconds", "Africa/Monrovia", "1971-01-01T00:00:00Z", "1971-01-01T00:02:00Z", "minute",
			"23:15-004430 23:16-004430 23:17-004430 23:17-004430"},
		{"weeks over a change", "Europe/Berlin", "2026-03-23T00:00:00+01:00", "2026-04-06T00:00:00+02:00", "week",
			"00:00+01 00:00+02 00:00+02"},
		{"weeks that are not aligned", "America/New_York", "2026-10-28T12:00:00-04:00", "2026-11-10T12:00:00-05:00",
			"week", "12:00-04 00:00-05 00:00-05 12:00-05"},
		{"a week that ends with a day without a midnight", "America/Sao_Paulo", "2018-11-01T00:00:00-03:00",
			"2018-11-06T00:00:00-02:00", "week", "00:00-03 00:00-02 00:00-02"},
		{"the clock of 1970 behind UTC", "America/New_York", "1970-01-01T00:00:00Z", "1970-01-01T02:30:00Z", "hour",
			"19:00-05 20:00-05 21:00-05 21:30-05"},
		{"an offset of seconds", "Africa/Monrovia", "1971-01-01T00:00:00Z", "1971-01-01T01:00:00Z", "hour",
			"23:15-004430 00:00-004430 00:15-004430"},
	} {
		step, ok := ParseStep(c.step)
		if !ok {
			t.Fatalf("no step %s", c.step)
		}
		z := zone(t, c.zone)
		cuts, fits := Cut(moment(t, c.from), moment(t, c.to), step, z, 100)
		var shown []string
		for _, at := range cuts {
			s := strings.TrimSuffix(at.Time().In(z).Format("15:04-07:00"), ":00")
			if _, offset := at.Time().In(z).Zone(); offset%60 != 0 {
				s = at.Time().In(z).Format("15:04-070000")
			}
			shown = append(shown, s[:5]+strings.ReplaceAll(s[5:], ":", ""))
		}
		if got := strings.Join(shown, " "); got != c.want || !fits {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Whatever the zone and the range: the cuts rise from one end to the other, no hour or minute is longer than one or
// shows two of the clock, every week begins on the first day of its ISO week that there is, and every cut of a week or
// month is one of a day, every cut of a day one of an hour, and every cut of an hour one of a minute.
func TestCutsNest(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo",
		"America/Havana", "Pacific/Apia", "America/St_Johns", "Africa/Monrovia", "Pacific/Kiritimati", "Etc/GMT+12"}
	rapid.Check(t, func(t *rapid.T) {
		z := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		from := Micros(rapid.Int64Range(0, int64(moment20(2040))).Draw(t, "from"))
		to := from + Micros(rapid.Int64Range(1, int64(70*24*microsPerHour)).Draw(t, "long"))
		steps := map[Step]map[Micros]bool{}
		for step := StepNone; step <= StepMonth; step++ {
			cuts, fits := Cut(from, to, step, z, 120_000)
			if !fits || cuts[0] != from || cuts[len(cuts)-1] != to {
				t.Fatalf("%s: %v", step, cuts)
			}
			steps[step] = map[Micros]bool{}
			for i, at := range cuts {
				steps[step][at] = true
				if i == 0 {
					continue
				}
				if at <= cuts[i-1] {
					t.Fatalf("%s: %s follows %s", step, at, cuts[i-1])
				}
				first, last := cuts[i-1].Time().In(z), (at - 1).Time().In(z)
				if step == StepHour && (at-cuts[i-1] > microsPerHour ||
					first.Format("2006-01-02T15-07:00:00") != last.Format("2006-01-02T15-07:00:00")) {
					t.Fatalf("one hour is %s to %s", first, last)
				}
				if step == StepMinute && (at-cuts[i-1] > microsPerMinute || first.Minute() != last.Minute()) {
					t.Fatalf("one minute is %s to %s", first, last)
				}
				if step == StepWeek && i < len(cuts)-1 && !beginsWeek(at, z) {
					t.Fatalf("a week begins at %s", at.Time().In(z))
				}
			}
		}
		for at := range steps[StepDay] {
			if at > from && at < to && beginsWeek(at, z) && !steps[StepWeek][at] {
				t.Fatalf("no week begins at %s", at.Time().In(z))
			}
		}
		for _, nested := range [][2]Step{{StepNone, StepMonth}, {StepMonth, StepDay}, {StepWeek, StepDay},
			{StepDay, StepHour}, {StepHour, StepMinute}} {
			for at := range steps[nested[0]] {
				if !steps[nested[1]][at] {
					t.Fatalf("%s cuts at %s, %s does not", nested[0], at.Time().In(z), nested[1])
				}
			}
		}
	})
}

// beginsWeek reports whether no moment of the three days before is shown in the ISO week of at, or a later one.
func beginsWeek(at Micros, z *time.Location) bool {
	year, week := at.Time().In(z).ISOWeek()
	for before := at - 1; before > at-3*24*microsPerHour && before >= 0; before -= microsPerHour {
		if y, w := before.Time().In(z).ISOWeek(); y > year || y == year && w >= week {
			return false
		}
	}
	return true
}

func moment20(year int) Micros { return FromTime(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)) }

func TestMonthsInUTCAreBillingPeriods(t *testing.T) {
	m, _ := ParseMonth("2026-11")
	cuts, _ := Cut(m.Start(), (m + 3).Start(), StepMonth, time.UTC, 10)
	for i, at := range cuts {
		if at != (m + Month(i)).Start() {
			t.Errorf("cut %d is %s", i, at)
		}
	}
}

func TestCutIsBounded(t *testing.T) {
	if cuts, fits := Cut(0, 3*microsPerHour, StepHour, time.UTC, 3); !fits || len(cuts) != 4 {
		t.Errorf("three hours: %v", cuts)
	}
	if _, fits := Cut(0, 3*microsPerHour+1, StepHour, time.UTC, 3); fits {
		t.Error("three hours and a microsecond fit three windows")
	}
	if cuts, fits := Cut(MaxMicros-1, MaxMicros+1, StepMonth, zone(t, "Pacific/Kiritimati"), 3); !fits ||
		len(cuts) != 2 {
		t.Errorf("the end of time: %v", cuts)
	}
}

func TestParseStep(t *testing.T) {
	for s := StepMinute; s <= StepMonth; s++ {
		if got, ok := ParseStep(s.String()); !ok || got != s {
			t.Errorf("%s is read as %s", s, got)
		}
	}
	for _, bad := range []string{"", "weeks", "Hour", "second"} {
		if _, ok := ParseStep(bad); ok {
			t.Errorf("%q is a step", bad)
		}
	}
}
