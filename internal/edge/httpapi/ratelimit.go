package httpapi

import "strconv"

// tellStanding says how a limited caller stands, on refusals too. Who is not limited is told nothing.
func (x *exchange) tellStanding() {
	s := &x.caller.Standing
	if s.Limit == 0 {
		return
	}
	h := x.w.Header()
	h["Ratelimit-Limit"] = []string{strconv.FormatInt(s.Limit, 10)}
	h["Ratelimit-Remaining"] = []string{strconv.FormatInt(s.Remaining, 10)}
	h["Ratelimit-Reset"] = []string{wholeSeconds(s.Reset)}
}
