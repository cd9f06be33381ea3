package httpkit

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// MediaEvents is the type of Server-Sent Events: an answer without an end, of blocks of lines.
const MediaEvents = "text/event-stream"

// The events that end a stream, with a problem as their data. No event of a ledger is called so: those have a dot.
const (
	eventClosing = "closing" // the server ends the stream
	eventDropped = "dropped" // the caller reads too slowly
)

// lastWords is how long a write that takes too long is still waited for, so that the caller can be answered why it is
// dropped. Who reads nothing at all is cut off then.
const lastWords = time.Second

// errSlow says that a caller took too long to read.
var errSlow = errors.New("the caller reads too slowly")

// EventStream is an answer of Server-Sent Events. It belongs to the goroutine that serves the request. Nothing is sent
// before Flush.
type EventStream struct {
	x       *Exchange
	control *http.ResponseController
	timeout time.Duration
	buf     []byte
}

// EventStream lets fn answer with events, until it returns why the stream ends. The context ends when the caller has
// gone away or the server stops. A caller has timeout to take what is flushed at once, else it is dropped; dropped
// reports that. An error before the first Flush is answered as any other. HEAD is answered without doing anything.
func (x *Exchange) EventStream(timeout time.Duration,
	fn func(ctx context.Context, s *EventStream) error) (dropped bool, err error) {
	if x.r.Method == http.MethodHead {
		x.eventHeader()
		x.Write(http.StatusOK, nil)
		return false, nil
	}
	ctx, stop := context.WithCancelCause(x.r.Context())
	defer stop(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-x.handler.streams.drained:
			stop(problem.New(problem.Unavailable, "the server is shutting down: connect again, which resumes"))
		case <-ended:
		}
	}()
	s := &EventStream{x: x, control: http.NewResponseController(x.w), timeout: timeout}
	err = fn(ctx, s)
	cause := context.Cause(ctx)
	switch {
	case s.x.status == 0 && cause == nil:
		return false, err
	case s.x.status == 0:
		return false, cause
	case errors.Is(err, errSlow):
		s.end(eventDropped, problem.Wrap(problem.Timeout, err, "what was sent was not read within %s: connect again, "+
			"which resumes after the last event that was read, and read faster", s.timeout))
		return true, nil
	case cause != nil: // nothing that a log should warn of
		s.end(eventClosing, cause)
		return false, nil
	}
	x.err = err
	s.end(eventClosing, err)
	return false, nil
}

// end says why the stream ends, to whoever is still there.
func (s *EventStream) end(name string, err error) {
	s.buf = s.buf[:0] // what was not sent before is sent when the caller resumes
	p := s.x.problemOf(err)
	s.Add("", name, func(b []byte) []byte { return s.x.route.shape.Append(b, s.x.refusal(p)) })
	_ = s.send() // a caller that is gone cannot be answered
}

// Retry asks the caller to wait this long before it connects again.
func (s *EventStream) Retry(d time.Duration) {
	s.buf = append(s.buf, "retry: "...)
	s.buf = append(strconv.AppendInt(s.buf, d.Milliseconds(), 10), '\n')
}

// Mark moves the place that the caller resumes from, and is no event to it. The comment is for people who look at the
// connection; it may be empty.
func (s *EventStream) Mark(id, comment string) {
	if comment != "" {
		s.buf = append(append(append(s.buf, ": "...), comment...), '\n')
	}
	s.buf = append(append(append(s.buf, "id: "...), id...), '\n', '\n')
}

// Add adds an event whose data is the document that fn appends. Without an id the caller's place stays where it is.
func (s *EventStream) Add(id, name string, fn func(b []byte) []byte) {
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
	s.buf = append(append(append(s.buf, "event: "...), name...), "\ndata: "...)
	begin := len(s.buf)
	s.buf = fn(s.buf)
	// Where a document has line breaks they mean nothing, and here they would end the data.
	for i := begin; i < len(s.buf); i++ {
		if s.buf[i] == '\n' || s.buf[i] == '\r' {
			s.buf[i] = ' '
		}
	}
	s.buf = append(s.buf, '\n', '\n')
}

// Len is how many bytes wait for Flush.
func (s *EventStream) Len() int { return len(s.buf) }

// Flush sends what was added. Errors end the stream. Between two writes there is no deadline: HTTP/2 would reset a
// stream whose deadline passes while it has nothing to say.
func (s *EventStream) Flush() error {
	if s.x.status == 0 {
		s.x.eventHeader()
		s.x.status = http.StatusOK
		s.x.w.WriteHeader(http.StatusOK)
	}
	if err := s.send(); err != nil {
		return err
	}
	_ = s.control.SetWriteDeadline(time.Time{}) // a connection without deadlines has none to take away
	return nil
}

// send writes what was gathered, and keeps no memory for a stream that may now wait for long.
func (s *EventStream) send() error {
	began := time.Now()
	if err := s.control.SetWriteDeadline(began.Add(s.timeout + lastWords)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := s.x.w.Write(s.buf)
	s.buf = nil
	if err == nil {
		err = s.control.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || err != nil && time.Since(began) >= s.timeout+lastWords {
		return errSlow // HTTP/2 says no more than that the stream is closed
	}
	if err == nil && time.Since(began) > s.timeout {
		return errSlow
	}
	return err
}

func (x *Exchange) eventHeader() {
	h := x.w.Header()
	h["Content-Type"] = []string{MediaEvents}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // nginx would hold events back
}
