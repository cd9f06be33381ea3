package httpkit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// Some answers take longer than a request may: they are streamed, as lines of JSON. A line is an object with one member
// that says what it is: progress, something found, and in the end either result or error. An answer without one of
// these two was cut off. What goes wrong before the first line is an ordinary problem with its status.

var ndjsonType = []string{MediaNDJSON}

const (
	// maxStreams bounds the streamed answers that are under way, since each keeps reading the store.
	maxStreams = 8
	// progressEvery is often enough for a person who watches.
	progressEvery = 500 * time.Millisecond
	// lineBytes is how much is gathered before it is sent.
	lineBytes = 32 << 10
)

// streams are the streamed answers under way.
type streams struct {
	mu      sync.Mutex // guards what follows
	count   int
	alone   map[string]bool // what only one at a time may do
	drained chan struct{}   // closed when the server is about to stop
}

// begin takes a place, or reports that there is none. alone, unless empty, names what nobody else may do meanwhile.
func (s *streams) begin(alone string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.alone[alone]:
		return problem.New(problem.Conflict, "the same is under way already: wait for its end")
	case s.count >= maxStreams:
		return problem.New(problem.Conflict, "%d long requests are under way: wait for the end of one", s.count)
	}
	s.count++
	if alone != "" {
		if s.alone == nil {
			s.alone = map[string]bool{}
		}
		s.alone[alone] = true
	}
	return nil
}

func (s *streams) end(alone string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	delete(s.alone, alone)
}

// Stream is an answer of lines. It belongs to the goroutine that serves the request.
type Stream struct {
	x       *Exchange
	control *http.ResponseController
	buf     []byte
	last    time.Time // when progress was sent
}

// Stream lets fn answer with lines. The context ends when the caller has gone away, a line cannot be sent, or the
// server stops. HEAD is answered without doing anything.
func (x *Exchange) Stream(alone string, fn func(ctx context.Context, s *Stream) error) error {
	if x.r.Method == http.MethodHead {
		x.w.Header()["Content-Type"] = ndjsonType
		x.Write(http.StatusOK, nil)
		return nil
	}
	if err := x.handler.streams.begin(alone); err != nil {
		return err
	}
	defer x.handler.streams.end(alone)
	ctx, stop := context.WithCancelCause(x.r.Context())
	defer stop(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-x.handler.streams.drained:
			stop(problem.New(problem.Unavailable, "the server is shutting down"))
		case <-ended:
		}
	}()
	s := &Stream{x: x, control: http.NewResponseController(x.w)}
	err := fn(ctx, s)
	if cause := context.Cause(ctx); err != nil && ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return s.end(err)
}

// end sends the last line. An error before the first one is answered as any other.
func (s *Stream) end(err error) error {
	if err == nil {
		err = s.flush()
	}
	if err == nil || s.x.status == 0 {
		return err
	}
	p := s.x.problemOf(err)
	s.x.err = err
	// A caller that is gone cannot be answered.
	_ = s.Line("error", func(b []byte) []byte { return s.x.route.shape.Append(b, s.x.refusal(p)) })
	_ = s.flush()
	return nil
}

// Line adds a line with one member, whose value is appended by fn.
func (s *Stream) Line(name string, fn func(b []byte) []byte) error {
	s.buf = append(s.buf, '{', '"')
	s.buf = append(append(s.buf, name...), '"', ':')
	s.buf = append(fn(s.buf), '}', '\n')
	if len(s.buf) < lineBytes {
		return nil
	}
	return s.flush()
}

// Document adds a line whose value is encoded from a shape of plain fields.
func (s *Stream) Document(name string, shape any) error {
	value, err := json.Marshal(shape)
	if err != nil {
		return err
	}
	return s.Line(name, func(b []byte) []byte { return append(b, value...) })
}

// Progress sends a line now and then. What was gathered goes with it.
func (s *Stream) Progress(shape any) error {
	if time.Since(s.last) < progressEvery {
		return nil
	}
	s.last = time.Now()
	if err := s.Document("progress", shape); err != nil {
		return err
	}
	return s.flush()
}

// flush sends what was gathered. Each time the caller has as long to take it as for a whole answer elsewhere.
func (s *Stream) flush() error {
	if s.x.status == 0 {
		s.x.w.Header()["Content-Type"] = ndjsonType
		s.x.status = http.StatusOK
		s.x.w.WriteHeader(http.StatusOK)
	}
	err := s.control.SetWriteDeadline(time.Now().Add(s.x.handler.options.WriteTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.x.w.Write(s.buf); err != nil {
		return err
	}
	s.buf = s.buf[:0]
	return s.control.Flush()
}
