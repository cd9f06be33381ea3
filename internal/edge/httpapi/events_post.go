package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tallystick/tallystick/internal/core/eventjson"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
)

// scratch is what a request of events needs only until it is answered. The body is not among it: events share its
// memory, and a store may keep strings of theirs.
type scratch struct {
	events []usage.Event
	answer []byte
}

// Header values that never change are shared: an answer sets them without allocating.
var (
	one = []string{"1"}
	yes = []string{"true"}
)

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxKeptAnswer keeps one answer of many refusals from staying in memory for good.
const maxKeptAnswer = 64 << 10

// acceptEvents serves POST /v1/events.
func (s *Server) acceptEvents(x *httpkit.Exchange) error {
	atomic, err := isAtomic(x)
	if err != nil {
		return err
	}
	key, err := x.RequestKey(request.MaxKeyFacts)
	if err != nil {
		return err
	}
	decode, err := decoder(x)
	if err != nil {
		return err
	}
	body, err := x.ReadBody(httpkit.MaxBody)
	if err != nil {
		return err
	}
	spare, _ := scratches.Get().(*scratch)
	batch, err := decode(body, spare.events)
	if err != nil {
		return err
	}
	record := x.Caller.Record
	if atomic && !batch.Single { // one event is whole as it is
		record = x.Caller.RecordAtomic
	}
	verdicts, err := record(x.Context(), batch.Events, key)
	x.ShowStanding()
	if err != nil {
		// The scratch is left to the collector: after a context that ended early, a store may still be reading the
		// events.
		return err
	}
	if len(verdicts) != len(batch.Events) {
		return fmt.Errorf("record %d events: %d verdicts", len(batch.Events), len(verdicts))
	}
	if fallback := s.options.Fallback; fallback != nil && fallback(x.Caller.Tenant) &&
		slices.ContainsFunc(verdicts, isKept) {
		x.Header()["Tally-Fallback"] = yes
	}
	if batch.Single {
		err = answerSingle(x, &batch.Events[0], &verdicts[0], spare)
	} else {
		err = answerBatch(x, batch.Events, verdicts, atomic, spare)
	}
	clear(batch.Events) // so that the pool does not keep bodies
	spare.events = batch.Events[:0]
	if cap(spare.answer) > maxKeptAnswer {
		spare.answer = nil
	}
	scratches.Put(spare)
	return err
}

func isKept(v usage.Verdict) bool { return v.Kept() }

// isAtomic reads whether one refusal shall refuse the whole batch.
func isAtomic(x *httpkit.Exchange) (bool, error) {
	if x.Request().URL.RawQuery == "" {
		return false, nil
	}
	q, err := x.Query("atomic")
	if err != nil {
		return false, err
	}
	switch q.Get("atomic") {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, httpkit.BadParameter("atomic", "must be true or false")
}

// decode reads events from a body.
type decode = func([]byte, []usage.Event) (eventjson.Batch, error)

// decoder chooses how to read the body.
func decoder(x *httpkit.Exchange) (decode, error) {
	media, err := x.MediaType()
	if err != nil {
		return nil, err
	}
	if name := binaryMode(x); name != "" {
		return binaryDecoder(x, name, media)
	}
	switch media {
	case "application/json":
		return eventjson.Decode, nil
	case httpkit.MediaNDJSON:
		return eventjson.DecodeLines, nil
	case "application/cloudevents+json":
		return eventjson.DecodeCloudEvent, nil
	case "application/cloudevents-batch+json":
		return eventjson.DecodeCloudEvents, nil
	}
	return nil, problem.New(problem.UnsupportedMedia,
		"Content-Type must be application/json, application/x-ndjson, application/cloudevents+json or "+
			"application/cloudevents-batch+json, not %s", media)
}

// answerSingle answers the verdict on the one event of a request.
func answerSingle(x *httpkit.Exchange, e *usage.Event, v *usage.Verdict, s *scratch) error {
	if v.Status == usage.Rejected || v.Status == usage.Conflict {
		return refusal(v)
	}
	h := x.Header()
	if v.Status == usage.Duplicate {
		h["Tally-Dedup"] = one
	}
	if v.Overage || v.Status == usage.Overage {
		h["Tally-Overage"] = yes
	}
	b := append(s.answer[:0], '{')
	b = appendVerdict(b, e, v)
	s.answer = append(b, '}', '\n')
	return x.Answer(http.StatusOK, s.answer)
}

// refusal is the verdict's problem. A store that refuses without saying why is at fault itself.
func refusal(v *usage.Verdict) error {
	if v.Problem == nil {
		return fmt.Errorf("event is %s without a reason", v.Status)
	}
	return v.Problem
}

// refuseBatch answers an atomic batch of which nothing was recorded: a problem that lists every refusal.
func refuseBatch(x *httpkit.Exchange, events []usage.Event, verdicts []usage.Verdict, refused int, s *scratch) error {
	p := problem.New(problem.BatchRefused,
		"%d of %d events are refused, so that none was recorded: results says which and why", refused, len(events))
	b := append(s.answer[:0], `,"results":[`...)
	b = appendResults(b, events, verdicts, (*usage.Verdict).Refused)
	s.answer = append(b, ']')
	return x.RefuseWith(p, s.answer)
}

// answerBatch counts the verdicts and lists those that are not plain acceptances, or all if the caller prefers so.
func answerBatch(x *httpkit.Exchange, events []usage.Event, verdicts []usage.Verdict, atomic bool, s *scratch) error {
	var n [usage.Withheld + 1]int
	overage, quota := 0, false
	for i := range verdicts {
		v := &verdicts[i]
		n[v.Status]++
		if v.Overage || v.Status == usage.Overage {
			overage++
		}
		quota = quota || v.Problem != nil && v.Problem.Code == problem.QuotaExceeded
	}
	h := x.Header()
	if quota {
		// The batch was answered: a Retry-After would have clients send all of it again. Each refused event says when
		// its quota resets.
		h["Tally-Quota-Exceeded"] = one
	}
	if refused := n[usage.Conflict] + n[usage.Rejected]; atomic && refused > 0 {
		return refuseBatch(x, events, verdicts, refused, s)
	}
	if overage > 0 {
		h["Tally-Overage"] = yes
	}
	b := append(s.answer[:0], '{')
	b = render.Int(b, "accepted", int64(n[usage.Accepted]+n[usage.Adjusted]+n[usage.Overage]))
	b = render.Int(b, "duplicates", int64(n[usage.Duplicate]))
	b = render.Int(b, "adjusted", int64(n[usage.Adjusted]))
	b = render.Int(b, "overage", int64(overage))
	b = render.Int(b, "conflicts", int64(n[usage.Conflict]))
	b = render.Int(b, "rejected", int64(n[usage.Rejected]))
	b = append(b, `,"results":[`...)
	if prefersAll(x) {
		b = appendResults(b, events, verdicts, func(*usage.Verdict) bool { return true })
	} else if n[usage.Accepted] < len(verdicts) {
		b = appendResults(b, events, verdicts, func(v *usage.Verdict) bool { return v.Status != usage.Accepted })
	}
	s.answer = append(b, "]}\n"...)
	return x.Answer(http.StatusOK, s.answer)
}

func appendResults(b []byte, events []usage.Event, verdicts []usage.Verdict, wanted func(*usage.Verdict) bool) []byte {
	first := true
	for i := range verdicts {
		v := &verdicts[i]
		if !wanted(v) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, ',')
		b = appendVerdict(b, &events[i], v)
		b = append(b, '}')
	}
	return b
}

// appendVerdict writes id, status, seq, and why not. An id that is too long to be one is not repeated.
func appendVerdict(b []byte, e *usage.Event, v *usage.Verdict) []byte {
	switch {
	case v.Key.Space == usage.DerivedSpace:
		b = append(b, `"id":"`...)
		b = append(b, usage.DerivedPrefix...)
		b = append(b, v.Key.Name...) // base64url
		b = append(b, `",`...)
	case v.Key.Name != "":
		b = append(b, `"id":`...)
		b = properties.AppendString(b, v.Key.Name)
		b = append(b, ',')
	case e.ID != "" && len(e.ID) <= usage.MaxID:
		b = append(b, `"id":`...)
		b = properties.AppendString(b, e.ID)
		b = append(b, ',')
	}
	b = append(b, `"status":"`...)
	b = append(b, v.Status.String()...)
	b = append(b, '"')
	if v.Seq != 0 {
		b = append(b, `,"seq":`...)
		b = strconv.AppendUint(b, v.Seq, 10)
	}
	if v.Status == usage.Adjusted && v.Overage {
		b = append(b, `,"overage":true`...)
	}
	if p := v.Problem; p != nil {
		b = append(b, `,"code":"`...)
		b = append(b, p.Code...)
		b = append(b, `","detail":`...)
		b = render.Text(b, p.Detail)
		b = httpkit.AppendReasons(b, p)
	}
	return b
}

// prefersAll reads Prefer: return=representation, alone or among others.
func prefersAll(x *httpkit.Exchange) bool {
	for _, header := range x.Request().Header["Prefer"] {
		for one := range strings.SplitSeq(header, ",") {
			preference, _, _ := strings.Cut(one, ";")
			name, value, _ := strings.Cut(preference, "=")
			if strings.EqualFold(strings.TrimSpace(name), "return") &&
				strings.EqualFold(strings.Trim(value, " \t\""), "representation") {
				return true
			}
		}
	}
	return false
}
