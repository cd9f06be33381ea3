package eventjson

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

const (
	// minMillis is where epoch milliseconds begin to be believed: as seconds it is the year 5138, as milliseconds 1973.
	minMillis = 100_000_000_000
	maxMillis = int64(calendar.MaxMicros) / 1000
)

const outOfCalendar = "must lie between 1970 and 9999"

// timeField reads RFC 3339 or epoch milliseconds.
func (d *decoder) timeField(ev *usage.Event) bool {
	switch c := d.peek(); {
	case c == '"':
		return d.timeString(ev)
	case c == '-' || isDigit(c):
		number, ok := d.number()
		if ok {
			d.setMillis(ev, number)
		}
		return ok
	}
	return d.wrongType(ev, "time", "a string in RFC 3339 or a number of milliseconds since 1970")
}

// timeString reads RFC 3339.
func (d *decoder) timeString(ev *usage.Event) bool {
	text, ok := d.text()
	if ok {
		setTime(ev, text)
	}
	return ok
}

func setTime(ev *usage.Event, text string) {
	at, ok := parseTime(text)
	switch {
	case !ok:
		invalid(ev, "time", "must be a time in RFC 3339, for example 2026-11-15T02:10:00Z")
	case !at.Valid():
		invalid(ev, "time", outOfCalendar)
	default:
		ev.Time = at
		ev.Given |= usage.GivenTime
	}
}

// setMillis takes a number whose value is whole, however it is written.
func (d *decoder) setMillis(ev *usage.Event, number string) {
	if !properties.CanonicalNumber(number) {
		canonical, err := properties.AppendNumber(d.scratch[:0], number)
		if err != nil {
			invalid(ev, "time", outOfCalendar)
			return
		}
		d.scratch = canonical
		number = string(canonical)
	}
	if number[0] == '-' {
		invalid(ev, "time", outOfCalendar)
		return
	}
	var millis int64
	for _, c := range []byte(number) {
		if c == '.' {
			invalid(ev, "time", "must be whole milliseconds")
			return
		}
		if millis > maxMillis {
			break
		}
		millis = millis*10 + int64(c-'0')
	}
	switch {
	case millis < minMillis:
		invalid(ev, "time", "looks like seconds; a number must be milliseconds since 1970")
	case millis > maxMillis:
		invalid(ev, "time", outOfCalendar)
	default:
		ev.Time = calendar.Micros(millis * 1000)
		ev.Given |= usage.GivenTime
	}
}

// parseTime reads RFC 3339 with capital T and Z, truncated to microseconds. It refuses leap seconds, which no count of
// seconds since 1970 can hold. Package time takes twice as long and lets more pass: hours of one digit, a comma.
func parseTime(s string) (calendar.Micros, bool) {
	const shortest = len("2006-01-02T15:04:05Z")
	if len(s) < shortest || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	century, year, month, day := pair(s[0:]), pair(s[2:]), pair(s[5:]), pair(s[8:])
	hour, minute, second := pair(s[11:]), pair(s[14:]), pair(s[17:])
	if century|year|month|day|hour|minute|second < 0 {
		return 0, false
	}
	year += 100 * century
	if month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	micros := int64(0)
	i := 19
	if s[i] == '.' {
		i++
		first := i
		for unit := int64(100_000); i < len(s) && isDigit(s[i]); i++ {
			micros += unit * int64(s[i]-'0')
			unit /= 10
		}
		if i == first {
			return 0, false
		}
	}
	offset, ok := parseOffset(s[i:])
	if !ok {
		return 0, false
	}
	seconds := int64(dayNumber(year, month, day))*86400 + int64(hour*3600+minute*60+second-offset)
	return calendar.Micros(seconds*1_000_000 + micros), true
}

// parseOffset reads Z or ±hh:mm and returns it in seconds.
func parseOffset(s string) (seconds int, ok bool) {
	if s == "Z" {
		return 0, true
	}
	if len(s) != len("+hh:mm") || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, false
	}
	hours, minutes := pair(s[1:]), pair(s[4:])
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	seconds = hours*3600 + minutes*60
	if s[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// pair reads two digits, or returns a negative number.
func pair(s string) int {
	if !isDigit(s[0]) || !isDigit(s[1]) {
		return -1
	}
	return int(s[0]-'0')*10 + int(s[1]-'0')
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// dayNumber counts the days from 1970-01-01 to a date. Years are taken to start in March, so that leap days fall at
// their end.
func dayNumber(year, month, day int) int {
	if month <= 2 {
		year--
		month += 12
	}
	year += 400 // keeps the divisions below away from negative numbers
	dayOfYear := (153*(month-3) + 2) / 5
	return 365*year + year/4 - year/100 + year/400 + dayOfYear + day - 1 - 719468 - 146097
}
