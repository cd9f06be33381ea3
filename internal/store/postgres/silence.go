package postgres

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A host that lost its power, or a network that was cut, closes no connection: whoever waits for an answer would wait
// for as long as the operating system does, which is minutes. The server itself ends a statement that takes too long
// and says so; a connection that says nothing for longer than that has nobody at its other end.

// listening makes connections that end when the server owes an answer and is silent for too long.
func listening(dial pgconn.DialFunc, patience time.Duration, silent func()) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &listener{Conn: c, patience: patience, silent: silent}, nil
	}
}

// listener bounds each read, unless the driver has set a deadline of its own.
type listener struct {
	net.Conn
	patience time.Duration
	silent   func() // is called when the patience has ended

	mu    sync.Mutex // guards bound, and the order in which deadlines are set
	bound bool       // by the driver
}

func (l *listener) Read(b []byte) (int, error) {
	l.mu.Lock()
	ours := !l.bound
	if ours {
		if err := l.SetReadDeadline(time.Now().Add(l.patience)); err != nil {
			l.mu.Unlock()
			return 0, err
		}
	}
	l.mu.Unlock()
	n, err := l.Conn.Read(b)
	if ours && errors.Is(err, os.ErrDeadlineExceeded) && !l.isBound() {
		l.silent()
	}
	return n, err
}

func (l *listener) isBound() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bound
}

// SetDeadline implements net.Conn: the driver's way to give a connection up.
func (l *listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bound = !t.IsZero()
	return l.Conn.SetDeadline(t)
}
