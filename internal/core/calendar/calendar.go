// Package calendar holds the measures of time that the rules use: microseconds since 1970 in UTC, which is how every
// fact's time is kept, the calendar month that a fact is billed in, and the day whose hours are added up. It reads no
// clock.
package calendar

import (
	"errors"
	"time"
)

// Micros is a moment: microseconds since 1970-01-01T00:00:00Z.
type Micros int64

// Month is a billing period: months since January of year 0, UTC.
type Month int32

// Day is a day of 24 hours, UTC: days since 1970-01-01.
type Day int32

// HoursPerDay is how many hours a Day has.
const HoursPerDay = 24

// The moments that a fact may carry. The lower bound keeps durations simple; the upper one keeps RFC 3339 four digits
// wide.
const (
	MinMicros Micros = 0
	MaxMicros Micros = 253402300800_000_000 - 1 // 9999-12-31T23:59:59.999999Z
)

const microsPerDay = 86_400_000_000

// ErrMonth is returned for a period that is not yyyy-mm.
var ErrMonth = errors.New(`a period is written yyyy-mm, for example "2026-11"`)

// FromTime truncates t to microseconds.
func FromTime(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time returns the moment in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// Valid reports whether the moment lies between 1970 and 9999.
func (m Micros) Valid() bool { return m >= MinMicros && m <= MaxMicros }

// Add moves the moment by d, truncated to microseconds.
func (m Micros) Add(d time.Duration) Micros { return m + Micros(d/time.Microsecond) }

// String is RFC 3339 with as many decimals as the moment has.
func (m Micros) String() string { return m.Time().Format(time.RFC3339Nano) }

// MonthOf returns the UTC month of a valid moment.
func MonthOf(m Micros) Month {
	// Civil date from a day count, with the year starting in March so that leap days fall at its end.
	// time.Time does the same at three times the cost, and this runs for every fact.
	days := int64(m) / microsPerDay
	z := days + 719468
	era := z / 146097
	dayOfEra := z - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	mp := (5*dayOfYear + 2) / 153
	month, year := mp+3, yearOfEra+era*400
	if month > 12 {
		month, year = month-12, year+1
	}
	return Month(year*12 + month - 1)
}

// DayOf returns the UTC day of a valid moment, and which hour of it.
func DayOf(m Micros) (d Day, hour int) {
	hours := m / microsPerHour
	return Day(hours / HoursPerDay), int(hours % HoursPerDay)
}

// Hour is the first moment of an hour of the day; the 24th is the first of the next day.
func (d Day) Hour(hour int) Micros { return Micros(d)*microsPerDay + Micros(hour)*microsPerHour }

// WholeHour reports whether an hour of UTC begins at the moment.
func (m Micros) WholeHour() bool { return m%microsPerHour == 0 }

// ParseMonth reads yyyy-mm.
func ParseMonth(s string) (Month, error) {
	if len(s) != 7 || s[4] != '-' {
		return 0, ErrMonth
	}
	n := 0
	for i, c := range []byte(s) {
		if i == 4 {
			continue
		}
		if c < '0' || c > '9' {
			return 0, ErrMonth
		}
		n = n*10 + int(c-'0')
	}
	year, month := n/100, n%100
	if year < 1970 || month < 1 || month > 12 {
		return 0, ErrMonth
	}
	return Month(year*12 + month - 1), nil
}

// Start is the first moment of the month.
func (m Month) Start() Micros {
	return FromTime(time.Date(int(m)/12, time.Month(int(m)%12+1), 1, 0, 0, 0, 0, time.UTC))
}

// End is the first moment after the month.
func (m Month) End() Micros { return (m + 1).Start() }

// String is yyyy-mm.
func (m Month) String() string {
	y, mo := int(m)/12, int(m)%12+1
	return string([]byte{byte('0' + y/1000%10), byte('0' + y/100%10), byte('0' + y/10%10), byte('0' + y%10), '-',
		byte('0' + mo/10), byte('0' + mo%10)})
}
