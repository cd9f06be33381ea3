package httpapi

import (
	"strconv"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/asof"
)

// asOf reads the moment at which a caller wants to see the ledger: the number of a row, or a time of commit. Digits
// alone are never a time here, other than in from and to; a date is one.
func asOf(q httpkit.Query) (asof.Point, error) {
	text := q.Get("as_of")
	if text == "" {
		return asof.Point{}, nil
	}
	if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
		return asof.AtSeq(seq), nil
	}
	at, ok := calendar.ParseMoment(text)
	if !ok {
		return asof.Point{}, httpkit.BadParameter("as_of",
			"must be the number of a row, an RFC 3339 time, for example 2026-11-15T02:10:00Z, or a date, "+
				"which is midnight in UTC")
	}
	return asof.AtTime(at), nil
}
