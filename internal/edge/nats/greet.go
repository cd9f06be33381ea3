package nats

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// Bounds of what a server can make us read. It greets with a line that lists its cluster; all else that it sends are
// acknowledgements of a hundred bytes.
const (
	maxLineBytes    = 64 << 10
	maxMessageBytes = 64 << 10
)

// errProtocol is why a connection ends whose server sends what no server sends to us.
var errProtocol = errors.New("the server does not speak as a NATS server does")

// greet reads the server's greeting, secures the connection if either side wants it so, and returns a connection that
// the client can trust to be sane. The client itself would allocate whatever size a message claims, and a tenant may
// have named the server: see guarded. It would also begin TLS above any check, so TLS begins here.
func greet(ctx context.Context, c net.Conn, address string, secure bool, config *tls.Config) (net.Conn, error) {
	// A deadline on the connection could pass a moment before that of ctx, and hide why.
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	info, err := readGreeting(c)
	if err != nil {
		return nil, err
	}
	var says struct {
		Required  bool `json:"tls_required"`
		Available bool `json:"tls_available"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(info, []byte("INFO ")), &says); err != nil {
		return nil, fmt.Errorf("%w: its greeting: %w", errProtocol, err)
	}
	switch {
	case says.Required, secure && says.Available:
		if config = config.Clone(); config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address) // it was joined by us
		}
		secured := tls.Client(c, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		c = secured
	case secure:
		return nil, errors.New("the server has no TLS")
	}
	return &guarded{Conn: c, greeting: info}, ctx.Err()
}

// readGreeting reads a line and not a byte more: TLS may begin behind it.
func readGreeting(r io.Reader) ([]byte, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxLineBytes; {
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, fmt.Errorf("read its greeting: %w", err)
		}
		if line = append(line, one[0]); one[0] == '\n' {
			return line, nil
		}
	}
	return nil, fmt.Errorf("%w: its greeting does not end", errProtocol)
}

// guarded passes on what the server sends while it is what servers send: lines that end and messages of our bounds. It
// follows the client's own reading of the protocol, and is strict where that is lax, so that both always agree on where
// a message ends.
type guarded struct {
	net.Conn
	greeting []byte // still to be read
	line     []byte // what came of a line that has not ended
	message  int    // bytes still to come of a message, the end of its line included
}

func (g *guarded) Read(b []byte) (int, error) {
	if len(g.greeting) > 0 {
		n := copy(b, g.greeting)
		g.greeting = g.greeting[n:]
		return n, nil
	}
	n, err := g.Conn.Read(b)
	if bad := g.check(b[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

func (g *guarded) check(b []byte) error {
	for len(b) > 0 {
		if g.message > 0 {
			n := min(g.message, len(b))
			if !endsMessage(b[:n], g.message) {
				return fmt.Errorf("%w: a message has another length than it says", errProtocol)
			}
			g.message -= n
			b = b[n:]
			continue
		}
		part, rest, ended := bytes.Cut(b, []byte("\n"))
		if len(g.line)+len(part) > maxLineBytes {
			return fmt.Errorf("%w: a line does not end", errProtocol)
		}
		g.line, b = append(g.line, part...), rest
		if !ended {
			return nil
		}
		var err error
		if g.message, err = follows(g.line); err != nil {
			return err
		}
		g.line = g.line[:0]
	}
	return nil
}

// endsMessage reports whether the last two of the bytes that are left of a message are the end of a line, as far as
// they are here.
func endsMessage(b []byte, left int) bool {
	if at := left - 2; at >= 0 && at < len(b) && b[at] != '\r' {
		return false
	}
	at := left - 1
	return at >= len(b) || b[at] == '\n'
}

// follows returns how many bytes belong to a line behind it.
func follows(line []byte) (int, error) {
	op, args, _ := bytes.Cut(line, []byte(" "))
	switch string(bytes.TrimSuffix(op, []byte("\r"))) {
	case "INFO", "PING", "PONG", "+OK", "-ERR":
		return 0, nil
	case "MSG", "HMSG":
	default:
		return 0, fmt.Errorf("%w: a line begins with %.20q", errProtocol, line)
	}
	words := bytes.FieldsFunc(args, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' })
	if len(words) == 0 {
		return 0, fmt.Errorf("%w: a message without a size", errProtocol)
	}
	size, err := strconv.ParseUint(string(words[len(words)-1]), 10, 32)
	if err != nil || size > maxMessageBytes {
		return 0, fmt.Errorf("%w: a message of %.20q bytes", errProtocol, words[len(words)-1])
	}
	return int(size) + len("\r\n"), nil
}
