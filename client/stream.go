package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// defaultSilence is three of the server's heartbeats.
const defaultSilence = 45 * time.Second

// StreamFilter says which rows Stream yields, and from where on.
type StreamFilter struct {
	// FromSeq is the row to begin with; 0: rows that are committed from now on.
	FromSeq uint64
	// Rows are the kinds of rows: "event", "entry", "change". Empty: events
	// alone beside Meter or Customer, else all that the key may read.
	Rows []string
	// Meter and Customer narrow the events.
	Meter, Customer string
	// Silence is how long the server may say nothing, not even a heartbeat,
	// before the connection is given up and made again. Default 45s.
	Silence time.Duration
}

func (f StreamFilter) query() url.Values {
	q := url.Values{}
	if f.FromSeq != 0 {
		q.Set("from_seq", strconv.FormatUint(f.FromSeq, 10))
	}
	setNonEmpty(q, "rows", strings.Join(f.Rows, ","))
	setNonEmpty(q, "meter", f.Meter)
	setNonEmpty(q, "customer", f.Customer)
	return q
}

// StreamedRow is a row of the ledger as Stream yields it.
type StreamedRow struct {
	Seq  uint64
	Type string // "usage.recorded", "entry.recorded", or a change's, such as "meter.created"
	// Data is the row as JSON: seq, type, at, and what its GET shows.
	Data json.RawMessage
}

// Stream yields rows as they are committed, in the order of seq, none left out
// and none twice. It goes on until the context ends or the caller has enough.
// A stream that ends is resumed behind the last row, also when the server is
// restarted meanwhile: once the first connection was made, for as long as it
// takes. It stops after the first error: that of the context, or a *Problem that
// trying again does not help against, such as a key that was revoked.
func (c *Client) Stream(ctx context.Context, f StreamFilter) iter.Seq2[StreamedRow, error] {
	return func(yield func(StreamedRow, error) bool) {
		s := &stream{c: c, query: f.query(), silence: f.Silence, yield: yield}
		if s.silence <= 0 {
			s.silence = defaultSilence
		}
		if err := s.run(ctx); err != nil {
			yield(StreamedRow{}, fmt.Errorf("GET /v1/stream: %w", err))
		}
	}
}

// stream is one call of Stream, over as many connections as it takes.
type stream struct {
	c       *Client
	query   url.Values
	silence time.Duration
	yield   func(StreamedRow, error) bool

	last    uint64        // the place to resume from
	placed  bool          // last is known
	retry   time.Duration // that the server asks for
	failed  int           // connections in a row that brought nothing
	enough  bool          // the caller wants no more
	greeted bool          // a connection was made once
}

// run connects until there is an error that another connection would not help
// against; nil: the caller has enough.
func (s *stream) run(ctx context.Context) error {
	for {
		err := s.connect(ctx)
		if s.enough {
			return nil
		}
		if stopped := ctx.Err(); stopped != nil {
			return stopped
		}
		wait := s.retry
		var p *Problem
		switch {
		case errors.As(err, &p):
			if !p.retryable() || p.RetryAfter > s.c.retry.MaxRetryAfter {
				return err
			}
			wait = max(wait, p.RetryAfter)
		case errors.Is(err, ErrMalformed), errors.Is(err, ErrAnswerTooLarge):
			return err
		}
		s.failed++
		if !s.greeted && s.failed >= s.c.retry.MaxAttempts {
			return err
		}
		if stopped := s.c.clock.Sleep(ctx, s.c.retry.wait(s.failed, wait)); stopped != nil {
			return stopped
		}
	}
}

// connect makes one connection and yields what it brings. It returns why it
// ended, never nil unless the caller has enough.
func (s *stream) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(s.silence, func() {
		cancel(fmt.Errorf("the server said nothing for %s", s.silence))
	})
	defer silent.Stop()
	resp, err := s.request(ctx)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, s.c.maxAnswer))
		if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		return newProblem(resp.StatusCode, resp.Header, text, s.c.clock.Now())
	}
	if media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); media != mediaEvents {
		return fmt.Errorf("%w: it is %q and not a stream", ErrMalformed, media)
	}
	s.greeted = true
	in := newEventReader(resp.Body, s.c.maxAnswer)
	for {
		e, err := in.next()
		if err != nil {
			return errors.Join(fmt.Errorf("read the stream: %w", err), context.Cause(ctx))
		}
		silent.Stop() // how long the caller takes for a row is not the server's silence
		if err := s.take(&e); err != nil || s.enough {
			return err
		}
		silent.Reset(s.silence)
	}
}

const mediaEvents = "text/event-stream"

func (s *stream) request(ctx context.Context) (*http.Response, error) {
	header, _, err := s.c.prepare(&call{method: http.MethodGet, path: "/v1/stream"})
	if err != nil {
		return nil, err
	}
	target := s.c.base + "/v1/stream"
	if len(s.query) > 0 {
		target += "?" + s.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	header.Set("Accept", mediaEvents+", application/problem+json")
	if s.placed {
		header.Set("Last-Event-ID", strconv.FormatUint(s.last, 10))
	}
	req.Header = header
	endless := *s.c.http // a timeout of the whole request would end the stream
	endless.Timeout = 0
	return endless.Do(req)
}

// take looks at one event. A place that is not behind the last one would be a
// row twice, or a gap.
func (s *stream) take(e *streamEvent) error {
	if e.retry > 0 {
		s.retry = e.retry
	}
	if e.name == "closing" || e.name == "dropped" {
		var p Problem
		if err := json.Unmarshal([]byte(e.data), &p); err != nil {
			return fmt.Errorf("%w: the end of the stream: %w", ErrMalformed, err)
		}
		if e.name == "dropped" {
			return errors.New(p.Detail) // to be resumed at once, whatever its code
		}
		return &p
	}
	if e.id == "" {
		return nil
	}
	seq, err := strconv.ParseUint(e.id, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%w: an event has the id %q, which is no row", ErrMalformed, e.id)
	case s.placed && (seq < s.last || seq == s.last && e.data != ""):
		return fmt.Errorf("%w: row %d after row %d", ErrMalformed, seq, s.last)
	}
	s.last, s.placed, s.failed = seq, true, 0
	if e.data == "" {
		return nil
	}
	if !json.Valid([]byte(e.data)) {
		return fmt.Errorf("%w: row %d is not JSON", ErrMalformed, seq)
	}
	s.enough = !s.yield(StreamedRow{Seq: seq, Type: e.name, Data: json.RawMessage(e.data)}, nil)
	return nil
}
