package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"
)

// conn is one persistent HTTP/1.1 connection that has one request under way. It is written by hand because the
// generator shares its cores with the server it measures: net/http's client takes two goroutines, a dozen allocations
// and some 10 µs for an exchange that costs one write and one or two reads here.
type conn struct {
	c        net.Conn
	r        *bufio.Reader
	body     []byte // of the last answer
	extended time.Time
}

const (
	dialTimeout = 10 * time.Second
	// patience is how long an answer may take before the connection is given up; a stalled disk answers later than any
	// healthy one, and a dead server never.
	patience = 2 * time.Minute
	// extendEvery keeps the deadline's cost away from every exchange.
	extendEvery = 10 * time.Second
	// maxAnswer holds the verdicts on a full batch of duplicates several times over.
	maxAnswer = 16 << 20
	readAhead = 32 << 10
)

var errAnswer = errors.New("not an HTTP/1.1 answer that this client understands")

func dial(ctx context.Context, u *url.URL) (*conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), u.Scheme)
	}
	var c net.Conn
	var err error
	if u.Scheme == "https" {
		c, err = (&tls.Dialer{NetDialer: dialer}).DialContext(ctx, "tcp", host)
	} else {
		c, err = dialer.DialContext(ctx, "tcp", host)
	}
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: bufio.NewReaderSize(c, readAhead)}, nil
}

// exchange sends a whole request and returns the answer, whose body is valid until the next exchange.
func (c *conn) exchange(request []byte) (status int, body []byte, err error) {
	if now := time.Now(); now.Sub(c.extended) > extendEvery {
		c.extended = now
		if err := c.c.SetDeadline(now.Add(patience)); err != nil {
			return 0, nil, fmt.Errorf("set deadline: %w", err)
		}
	}
	if _, err := c.c.Write(request); err != nil {
		return 0, nil, fmt.Errorf("send request: %w", err)
	}
	status, err = c.read()
	if err != nil {
		return 0, nil, fmt.Errorf("read answer: %w", err)
	}
	return status, c.body, nil
}

var (
	lengthName = []byte("content-length:")
	codingName = []byte("transfer-encoding:")
)

func (c *conn) read() (status int, err error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, errAnswer
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, errAnswer
	}
	length, chunked := -1, false
	for {
		if line, err = c.line(); err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		if value, ok := cutName(line, lengthName); ok {
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 || length > maxAnswer {
				return 0, errAnswer
			}
		}
		if value, ok := cutName(line, codingName); ok {
			chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
	c.body = c.body[:0]
	switch {
	case chunked:
		return status, c.readChunks()
	case length < 0:
		return 0, errAnswer
	}
	return status, c.take(length)
}

// cutName returns the value of a header line if it has that name, which is given in lower case.
func cutName(line, name []byte) ([]byte, bool) {
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], name) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name):]), true
}

// line returns the next line without its end.
func (c *conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// take appends n bytes to the body.
func (c *conn) take(n int) error {
	at := len(c.body)
	if at+n > maxAnswer {
		return errAnswer
	}
	if cap(c.body) < at+n {
		c.body = append(make([]byte, 0, 2*(at+n)), c.body...)
	}
	c.body = c.body[:at+n]
	_, err := io.ReadFull(c.r, c.body[at:])
	return err
}

func (c *conn) readChunks() error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte{';'})
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 31)
		if err != nil {
			return errAnswer
		}
		if err := c.take(int(n)); err != nil {
			return err
		}
		// A chunk ends with a line end; after the last one come trailers, of which our servers send none.
		if line, err = c.line(); err != nil || len(line) > 0 {
			return errors.Join(err, errAnswer)
		}
		if n == 0 {
			return nil
		}
	}
}

func (c *conn) close() error { return c.c.Close() }
