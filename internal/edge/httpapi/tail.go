package httpapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/store"
)

// # The live tail
//
// A stream is a place in a ledger and nothing else: it looks at the store for the rows behind its place, as many as fit
// a piece, leaves the store, sends the piece and moves on. So nothing is queued for a caller who reads slowly, nothing
// is lost when one goes away, and any node can go on where another stopped. A caller that takes too long for a piece is
// dropped and resumes.
//
// The caller learns its place with each row, and besides at the beginning and with each heartbeat: who has not seen a
// row yet, or has a filter that few rows pass, resumes without a gap, too.

const streamPath = "/v1/stream"

// tailPiece is how many bytes are gathered for one write. It bounds the memory of a stream, but for the last row.
const tailPiece = 64 << 10

// resumeHeader is where a caller names the last row that it has seen.
const resumeHeader = "Last-Event-Id"

// Defaults of StreamOptions.
const (
	DefaultMaxStreams          = 1000
	DefaultMaxStreamsPerTenant = 100
	DefaultStreamHeartbeat     = 15 * time.Second
	DefaultStreamWriteTimeout  = 10 * time.Second
	DefaultStreamPoll          = time.Second
	DefaultStreamRetry         = time.Second
)

// StreamOptions bound the streams of rows.
type StreamOptions struct {
	// Max bounds the streams that are open at once, MaxPerTenant those of one tenant. Default 1000 and 100.
	Max, MaxPerTenant int
	// Heartbeat is how long a stream may have nothing to say before it says so. Default 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long a caller may take to read what is sent at once, at most some 64 KiB. Default 10 s.
	WriteTimeout time.Duration
	// Poll is how often it is asked for what other nodes committed, and whether the caller's key is still good.
	// Default 1 s.
	Poll time.Duration
	// Retry is how long a caller should wait before it connects again. Default 1 s.
	Retry time.Duration
}

func (o *StreamOptions) setDefaults() {
	setDefault(&o.Max, DefaultMaxStreams)
	setDefault(&o.MaxPerTenant, DefaultMaxStreamsPerTenant)
	setDefault(&o.Heartbeat, DefaultStreamHeartbeat)
	setDefault(&o.WriteTimeout, DefaultStreamWriteTimeout)
	setDefault(&o.Poll, DefaultStreamPoll)
	setDefault(&o.Retry, DefaultStreamRetry)
}

// tail is one stream: what is wanted, and how far it has come.
type tail struct {
	api    *Server
	x      *httpkit.Exchange
	hint   store.RowHint // the kinds of rows
	filter eventFilter   // of events
	at     uint64        // the last row that was looked at
	begins bool          // at is where the ledger ends when the stream begins

	spoke   time.Time // when something was sent
	checked time.Time // when the caller was last known to be let in
	closed  error     // why the stream ends where the ledger does; nil: it does not
}

// getStream serves GET /v1/stream.
func (s *Server) getStream(x *httpkit.Exchange) error {
	t, err := s.readTail(x)
	if err != nil {
		return err
	}
	if s.kit.Draining() {
		return problem.New(problem.Unavailable, "the server is shutting down")
	}
	if err := s.tails.enter(x.Caller.Tenant); err != nil {
		return err
	}
	dropped := false
	defer func() { s.tails.leave(x.Caller.Tenant, dropped) }()
	dropped, err = x.EventStream(s.options.Streams.WriteTimeout, t.run)
	return err
}

// readTail reads what is asked for.
func (s *Server) readTail(x *httpkit.Exchange) (*tail, error) {
	q, err := x.Query("from_seq", "rows", "meter", "customer")
	if err != nil {
		return nil, err
	}
	t := &tail{api: s, x: x, filter: eventFilter{meter: q.Get("meter"), customer: q.Get("customer")}}
	if t.hint, err = tailKinds(q, x.Caller.Scopes); err != nil {
		return nil, err
	}
	first, err := q.Seq("from_seq", 0)
	if err != nil {
		return nil, err
	}
	t.at, t.begins = max(first, 1)-1, q.Get("from_seq") == ""
	return t, t.resume(x.Request().Header[resumeHeader])
}

// resume takes the place of a caller who has been here before.
func (t *tail) resume(header []string) error {
	if len(header) == 0 || len(header) == 1 && header[0] == "" {
		return nil
	}
	seq, err := strconv.ParseUint(header[0], 10, 63)
	if err != nil || len(header) > 1 {
		return badResume("must be the id of an event of this stream, once")
	}
	t.at, t.begins = seq, false
	return nil
}

func badResume(message string) error {
	p := problem.New(problem.Malformed, "the header Last-Event-ID %s", message)
	p.Fields = []problem.Field{{Path: "Last-Event-ID", Message: message}}
	return p
}

// tailKinds reads which kinds of rows are wanted. Changes are for keys that may read the audit log.
func tailKinds(q httpkit.Query, scopes tenant.Scope) (h store.RowHint, err error) {
	text := q.Get("rows")
	if text == "" {
		if q.Get("meter") != "" || q.Get("customer") != "" {
			return store.RowHint{Events: true}, nil
		}
		return store.RowHint{Events: true, Entries: true, Changes: scopes.Allows(tenant.Audit)}, nil
	}
	for kind := range strings.SplitSeq(text, ",") {
		into := map[string]*bool{ledger.EventRow.String(): &h.Events, ledger.EntryRow.String(): &h.Entries,
			ledger.ChangeRow.String(): &h.Changes}[kind]
		if into == nil || *into {
			return h, httpkit.BadParameter("rows",
				"must be event, entry and change, those that are wanted, each once, with commas between them")
		}
		*into = true
	}
	if h.Changes && !scopes.Allows(tenant.Audit) {
		return h, problem.New(problem.Forbidden, "this API key lacks the scope audit, which rows=change needs: leave "+
			"change out, or use another key")
	}
	return h, nil
}

// run sends rows until the stream ends.
func (t *tail) run(ctx context.Context, s *httpkit.EventStream) error {
	if err := t.begin(ctx, s); err != nil {
		return err
	}
	for {
		end, err := t.gather(ctx, s)
		if err != nil {
			return err
		}
		if err := t.send(s); err != nil {
			return err
		}
		if err := t.beat(s); err != nil {
			return err
		}
		if err := t.still(ctx); err != nil {
			return err
		}
		switch {
		case end && t.closed != nil:
			return t.closed
		case end:
			err = t.wait(ctx, s)
		default:
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// send sends what was gathered, if anything was.
func (t *tail) send(s *httpkit.EventStream) error {
	if s.Len() == 0 {
		return nil
	}
	err := s.Flush()
	t.spoke = time.Now()
	return err
}

// begin finds out what can be refused, and where the stream begins.
func (t *tail) begin(ctx context.Context, s *httpkit.EventStream) error {
	if err := t.still(ctx); err != nil {
		return err
	}
	err := t.api.options.Store.View(ctx, t.x.Caller.Tenant, func(v store.View) error {
		if t.filter.meter != "" {
			m, err := store.GetMeter(v, t.filter.meter)
			if err != nil {
				return err
			}
			t.filter.number = m.Number
		}
		return t.place(v)
	})
	if err != nil {
		return err
	}
	s.Retry(t.api.options.Streams.Retry)
	t.mark(s, "")
	return t.send(s)
}

// place holds the place that was asked for against the ledger.
func (t *tail) place(v store.View) error {
	head := v.Head().Seq
	switch {
	case t.begins:
		t.at = head
	case t.at > head && t.x.Request().Header.Get(resumeHeader) != "":
		return badResume("is beyond row " + strconv.FormatUint(head, 10) + ", where this ledger ends: it is of " +
			"another ledger, or this one was restored; leave it out and look at what there is from from_seq on")
	case t.at > head:
		return httpkit.BadParameter("from_seq", "is beyond row "+strconv.FormatUint(head+1, 10)+
			", the next one; leave it out for the rows from now on")
	}
	if t.closed != nil && t.at == head {
		return t.closed
	}
	// Rows that have left are found missing before the stream begins.
	_, _, err := v.Rows(t.at, t.hint, func(*ledger.Row) bool { return false })
	return err
}

// gather looks at the ledger for rows to send, as many as fit a piece. It reports whether the ledger ended there.
func (t *tail) gather(ctx context.Context, s *httpkit.EventStream) (end bool, err error) {
	var last uint64
	err = t.api.options.Store.View(ctx, t.x.Caller.Tenant, func(v store.View) error {
		write, err := RowRenderer(v)
		if err != nil {
			return err
		}
		last, end, err = v.Rows(t.at, t.hint, func(r *ledger.Row) bool {
			if t.wants(r) {
				s.Add(strconv.FormatUint(r.Seq, 10), r.Type(), func(b []byte) []byte { return write(b, r) })
			}
			return s.Len() < tailPiece
		})
		if end {
			last = max(last, v.Head().Seq) // also behind rows that are of no kind that is wanted
		}
		return err
	})
	if err == nil {
		t.at = last
	}
	return end, err
}

func (t *tail) wants(r *ledger.Row) bool {
	switch r.Kind() {
	case ledger.EventRow:
		return t.hint.Events && t.filter.wants(r.Event)
	case ledger.EntryRow:
		return t.hint.Entries
	}
	return t.hint.Changes
}

// wait returns when the ledger has grown, or was closed. Meanwhile the store is left alone: thousands may wait.
func (t *tail) wait(ctx context.Context, s *httpkit.EventStream) error {
	o := &t.api.options.Streams
	for {
		grown := t.api.tails.beyond(t.x.Caller.Tenant, t.at)
		if grown == nil {
			return nil
		}
		timer := time.NewTimer(min(o.Poll, o.Heartbeat-time.Since(t.spoke)))
		select {
		case <-grown:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := t.beat(s); err != nil {
			return err
		}
		if err := t.still(ctx); err != nil || t.closed != nil {
			return err
		}
	}
}

// beat says that there is nothing to say, if nothing was said for long.
func (t *tail) beat(s *httpkit.EventStream) error {
	if time.Since(t.spoke) < t.api.options.Streams.Heartbeat {
		return nil
	}
	t.mark(s, "heartbeat")
	return t.send(s)
}

// mark sends the caller its place.
func (t *tail) mark(s *httpkit.EventStream, comment string) {
	s.Mark(strconv.FormatUint(t.at, 10), comment)
}

// still ends the stream of a caller who would not be let in any more, but asks no more often than now and then. Of a
// tenant that was closed all rows are sent that there are.
func (t *tail) still(ctx context.Context) error {
	now := time.Now()
	if now.Sub(t.checked) < t.api.options.Streams.Poll {
		return nil
	}
	t.checked = now
	err := t.x.Still(ctx)
	if problem.Is(err, problem.TenantClosed) {
		t.closed = err
		return nil
	}
	return err
}
