package load

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Target is where batches are posted.
type Target struct {
	URL  *url.URL
	Keys []string // by tenant; empty: no key is sent
}

// Sender posts batches over one connection, one after the other.
type Sender struct {
	ctx      context.Context // of the connection
	w        *Workload
	c        *conn
	detach   func() bool
	prefixes [][]byte // by tenant: the request as far as the body's length
	room     int      // of the longest header
	buf      []byte   // the request; its body always starts at room

	Sent    int64 // bytes of bodies
	Retries int64
}

// maxLengthDigits is more than the largest body's length has.
const maxLengthDigits = 12

// NewSender connects. When the context ends, the connection is cut.
func NewSender(ctx context.Context, w *Workload, to Target) (*Sender, error) {
	c, err := dial(ctx, to.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to.URL.Host, err)
	}
	s := &Sender{ctx: ctx, w: w, c: c}
	s.detach = context.AfterFunc(ctx, func() { _ = c.close() })
	path := strings.TrimRight(to.URL.EscapedPath(), "/") + "/v1/events"
	for i := range w.Tenants() {
		p := "POST " + path + " HTTP/1.1\r\nHost: " + to.URL.Host + "\r\nContent-Type: application/json\r\n"
		if len(to.Keys) > 0 {
			p += "Authorization: Bearer " + to.Keys[i] + "\r\n"
		}
		p += "Content-Length: "
		s.prefixes = append(s.prefixes, []byte(p))
		s.room = max(s.room, len(p)+maxLengthDigits+len("\r\n\r\n"))
	}
	return s, nil
}

// Close ends the connection.
func (s *Sender) Close() error {
	s.detach()
	return s.c.close()
}

// Post sends the batch and returns the answer as it is. Its body is valid until the next call.
func (s *Sender) Post(b *Batch) (status int, body []byte, err error) { return s.post(s.encode(b)) }

func (s *Sender) post(request []byte) (status int, body []byte, err error) {
	status, body, err = s.c.exchange(request)
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx) // the connection was cut because of it
	}
	return status, body, err
}

// encode puts the header right before the body, so that one write sends both and nothing is copied.
func (s *Sender) encode(b *Batch) []byte {
	if cap(s.buf) < s.room {
		s.buf = make([]byte, s.room, s.room+len(b.Facts)*160)
	}
	s.buf = s.w.AppendJSON(s.buf[:s.room], b)
	length := len(s.buf) - s.room
	s.Sent += int64(length)
	var tail [maxLengthDigits + 4]byte
	end := append(strconv.AppendInt(tail[:0], int64(length), 10), "\r\n\r\n"...)
	prefix := s.prefixes[b.Tenant]
	start := s.room - len(prefix) - len(end)
	copy(s.buf[start:], prefix)
	copy(s.buf[s.room-len(end):], end)
	return s.buf[start:]
}

const (
	// maxAttempts and retryWait let a server that says it is busy catch up for a minute.
	maxAttempts = 600
	retryWait   = 100 * time.Millisecond
	// quoted is how much of an unexpected answer an error repeats.
	quoted = 300
)

// Send posts the batch, again while the server is busy, and compares the verdicts with what they must be: every fresh
// fact accepted, every repeated one a duplicate.
func (s *Sender) Send(b *Batch) error {
	request := s.encode(b)
	for attempt := 1; ; attempt++ {
		status, body, err := s.post(request)
		if err != nil {
			return err
		}
		if status == http.StatusOK {
			return checkAnswer(b, body)
		}
		if status != http.StatusServiceUnavailable || attempt == maxAttempts {
			return fmt.Errorf("answer %d: %.*s", status, quoted, body)
		}
		s.Retries++
		select {
		case <-time.After(retryWait):
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

func checkAnswer(b *Batch, body []byte) error {
	var accepted, duplicates int
	if len(b.Facts) == 1 {
		accepted, duplicates = bytes.Count(body, []byte(`"status":"accepted"`)),
			bytes.Count(body, []byte(`"status":"duplicate"`))
	} else {
		accepted, duplicates = number(body, `"accepted":`), number(body, `"duplicates":`)
	}
	if accepted != b.Fresh || duplicates != b.Duplicates {
		return fmt.Errorf("%w: of %d new and %d repeated events, %d were answered accepted and %d duplicate: %.*s",
			ErrTotals, b.Fresh, b.Duplicates, accepted, duplicates, quoted, body)
	}
	return nil
}

// number returns the digits behind a name, or -1. The counts stand before the results, so no event's id can be met
// first.
func number(body []byte, name string) int {
	_, rest, ok := bytes.Cut(body, []byte(name))
	n, digits := 0, 0
	for digits < len(rest) && rest[digits]-'0' <= 9 && digits < 9 {
		n = n*10 + int(rest[digits]-'0')
		digits++
	}
	if !ok || digits == 0 {
		return -1
	}
	return n
}
