package calendar

import "time"

// Step is how a range of time is cut into windows.
type Step uint8

// The steps. StepNone leaves the range whole.
const (
	StepNone Step = iota
	StepHour
	StepDay
	StepMonth
)

var stepNames = [...]string{StepNone: "", StepHour: "hour", StepDay: "day", StepMonth: "month"}

func (s Step) String() string { return stepNames[s] }

// ParseStep reads hour, day or month.
func ParseStep(name string) (Step, bool) {
	for s := StepHour; s <= StepMonth; s++ {
		if stepNames[s] == name {
			return s, true
		}
	}
	return StepNone, false
}

// Cut returns where the windows of [from, to) begin, and to itself at the end: window i is [cuts[i], cuts[i+1]). The first and the
// last are cut short where the range is not aligned. It reports false when there would be more than limit windows.
//
// Days and months begin when the zone's calendar first shows them: one that a change of offset skips is no window, one that it
// lengthens or shortens is one window. An hour is an hour of the zone's clock under one offset, so that the hour which the
// clock repeats in autumn is two windows, and a change of half an hour leaves one window of 30 minutes.
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
	case StepHour:
		var s stretch
		return func(at Micros) Micros { return s.nextHour(at, zone) }
	case StepDay, StepMonth:
		year, month, day := from.Time().In(zone).Date()
		return func(at Micros) Micros {
			for {
				if step == StepDay {
					day++
				} else {
					month, day = month+1, 1
				}
				if begins := firstShown(time.Date(year, month, day, 0, 0, 0, 0, time.UTC), zone); begins > at {
					return begins
				}
			}
		}
	}
	return func(Micros) Micros { return MaxMicros + 1 }
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

const microsPerHour = Micros(time.Hour / time.Microsecond)

// stretch is a time in which a zone's offset does not change.
type stretch struct {
	offset Micros
	end    Micros // the first moment after it
}

// nextHour is the next full hour of the zone's clock, or the next change of its offset.
func (s *stretch) nextHour(at Micros, zone *time.Location) Micros {
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
	// A clock that is behind UTC shows times before 1970: hence the day's worth of hours that keeps the remainder positive.
	next := at + microsPerHour - (at+s.offset+24*microsPerHour)%microsPerHour
	return min(next, s.end)
}
