package calendar

import (
	"strings"
	"time"
)

// ParseMoment reads RFC 3339, or a date alone, which is its midnight in UTC. It reports false for anything else, and
// for what lies outside 1970 to 9999.
func ParseMoment(text string) (Micros, bool) {
	layout := time.RFC3339Nano
	if len(text) == len(time.DateOnly) {
		layout = time.DateOnly
	}
	t, err := time.Parse(layout, text)
	if err != nil || layout == time.RFC3339Nano && !strict(text) {
		return 0, false
	}
	m := FromTime(t)
	return m, m.Valid()
}

// strict refuses what time.Parse lets through beside RFC 3339: an hour of one digit, a comma, an offset of a day.
func strict(text string) bool {
	if text[len("2026-11-15T02")] != ':' || strings.Contains(text, ",") {
		return false
	}
	offset := text[len(text)-len("02:10"):]
	return strings.HasSuffix(text, "Z") || offset[:2] < "24" && offset[3:] < "60"
}
