package httpapi

import (
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/service/past"
)

// asOf reads the moment at which a caller wants to see the ledger: the number of a row, or a time of commit. A number is never a time
// here, other than in from and to.
func (q query) asOf() (past.Point, error) {
	text := q.get("as_of")
	if text == "" {
		return past.Point{}, nil
	}
	if strings.Trim(text, "-0123456789") == "" {
		seq, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return past.Point{}, badParameter("as_of", "must be the number of a row, or an RFC 3339 time")
		}
		return past.AtSeq(seq), nil
	}
	at, wrong := parseMoment(text)
	if wrong != "" {
		return past.Point{}, badParameter("as_of", "must be the number of a row, or an RFC 3339 time, for example 2026-11-15T02:10:00Z")
	}
	return past.AtTime(at), nil
}
