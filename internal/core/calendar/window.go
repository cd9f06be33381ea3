package calendar

import "time"

// Step is how a range of time is cut into windows.
type Step uint8

// The steps. StepNone leaves the range whole.
const (
	StepNone Step = iota
	StepMinute
	StepHour
	StepDay
	StepWeek
	StepMonth
)

var stepNames = [...]string{StepNone: "", StepMinute: "minute", StepHour: "hour", StepDay: "day", StepWeek: "week",
	StepMonth: "month"}

func (s Step) String() string { return stepNames[s] }

// ParseStep reads minute, hour, day, week or month.
func ParseStep(name string) (Step, bool) {
	for s := StepMinute; s <= StepMonth; s++ {
		if stepNames[s] == name {
			return s, true
		}
	}
	return StepNone, false
}

// Cut returns where the windows of [from, to) begin, and to itself at the end: window i is [cuts[i], cuts[i+1]). The
// first and the last are cut short where the range is not aligned. It reports false when there would be more than limit
// windows.
//
// Days, weeks and months begin when the zone's calendar first shows them: one that a change of offset skips is no
// window, one that it lengthens or shortens is one window. A week begins on Monday, as ISO 8601 has it. An hour is an
// hour of the zone's clock under one offset, so that the hour which the clock repeats in autumn is two windows, and a
// change of half an hour leaves one window of 30 minutes. Minutes are cut likewise.
func Cut(from, to Micros, step Step, zone *time.Location, limit int) (cuts []Micros, fits bool) {
	next := nextCut(from, step, zone)
	for at := from; at < to; at = next(at) {
		if len(cuts) == limit {
			return nil, false
		}
		cuts = append(cuts, at)
	}
	return append(cuts, to), true
}

// nextCut returns a function that finds the first cut after a moment; it is called with moments that do not decrease.
func nextCut(from Micros, step Step, zone *time.Location) func(Micros) Micros {
	switch step {
	case StepNone:
		return func(Micros) Micros { return MaxMicros + 1 }
	case StepMinute:
		s := stretch{unit: microsPerMinute}
		return func(at Micros) Micros { return s.next(at, zone) }
	case StepHour:
		s := stretch{unit: microsPerHour}
		return func(at Micros) Micros { return s.next(at, zone) }
	}
	year, month, day := from.Time().In(zone).Date()
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	return func(at Micros) Micros {
		for {
			date = nextDate(date, step)
			if begins := firstShown(date, zone); begins > at {
				return begins
			}
		}
	}
}

// nextDate is the first date after the given one on which a day, a week or a month begins.
func nextDate(date time.Time, step Step) time.Time {
	switch step {
	case StepWeek:
		sinceMonday := (int(date.Weekday()) + 6) % 7
		return date.AddDate(0, 0, 7-sinceMonday)
	case StepMonth:
		return time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return date.AddDate(0, 0, 1)
}

// widest is more than any zone is ahead of UTC or behind it.
const widest = 24 * time.Hour

// firstShown is the first moment at which the zone's clock shows the wall time or a later one.
func firstShown(wall time.Time, zone *time.Location) Micros {
	for at := wall.Add(-widest).In(zone); ; {
		_, offset := at.Zone()
		_, end := at.ZoneBounds()
		shown := wall.Add(-time.Duration(offset) * time.Second)
		if shown.Before(at) { // the change of offset leapt over it
			shown = at
		}
		if end.IsZero() || shown.Before(end) {
			return FromTime(shown)
		}
		at = end
	}
}

const (
	microsPerMinute = Micros(time.Minute / time.Microsecond)
	microsPerHour   = Micros(time.Hour / time.Microsecond)
)

// stretch is a time in which a zone's offset does not change, cut by a unit of its clock.
type stretch struct {
	unit   Micros
	offset Micros
	end    Micros // the first moment after it
}

// next is when the next unit of the zone's clock begins, or when its offset changes.
func (s *stretch) next(at Micros, zone *time.Location) Micros {
	for at >= s.end {
		t := at.Time().In(zone)
		_, seconds := t.Zone()
		_, end := t.ZoneBounds()
		s.offset, s.end = Micros(seconds)*1_000_000, MaxMicros+1
		for !end.IsZero() {
			if _, after := end.Zone(); after != seconds {
				s.end = FromTime(end)
				break
			}
			_, end = end.ZoneBounds() // only the zone's name changed
		}
	}
	// A clock that is behind UTC shows times before 1970: hence the day's worth of hours that keeps the remainder
	// positive.
	next := at + s.unit - (at+s.offset+24*microsPerHour)%s.unit
	return min(next, s.end)
}
