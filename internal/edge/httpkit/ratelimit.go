package httpkit

import "strconv"

// ShowStanding puts into the header how a limited caller stands, on refusals too; nothing for who is not limited. It is
// for a handler that took from the caller's rate itself.
func (x *Exchange) ShowStanding() {
	s := &x.Caller.Standing
	if s.Limit == 0 {
		return
	}
	h := x.w.Header()
	h["Ratelimit-Limit"] = []string{strconv.FormatInt(s.Limit, 10)}
	h["Ratelimit-Remaining"] = []string{strconv.FormatInt(s.Remaining, 10)}
	h["Ratelimit-Reset"] = []string{wholeSeconds(s.Reset)}
}
