package postgres

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// Given a connection whose other end says nothing, when an answer is waited for, then the wait ends and the store is
// reported; but a wait that the driver itself gave up says nothing about the server.
func TestSilenceEndsAWait(t *testing.T) {
	t.Parallel()
	silences := 0
	connect := func(patience time.Duration) (ours, theirs net.Conn) {
		t.Helper()
		ours, theirs = net.Pipe()
		dial := listening(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, patience,
			func() { silences++ })
		c, err := dial(context.Background(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		return c, theirs
	}
	waits := func(c net.Conn) error {
		_, err := c.Read(make([]byte, 1))
		return err
	}

	c, _ := connect(time.Millisecond)
	if err := waits(c); !errors.Is(err, os.ErrDeadlineExceeded) || silences != 1 {
		t.Errorf("the wait ended with %v, reported %d times", err, silences)
	}

	c, _ = connect(time.Hour)
	given := make(chan error)
	go func() { given <- waits(c) }()
	if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-given; !errors.Is(err, os.ErrDeadlineExceeded) || silences != 1 {
		t.Errorf("the wait that was given up ended with %v, reported %d times", err, silences)
	}

	c, theirs := connect(time.Hour)
	go func() { _, _ = theirs.Write([]byte("x")) }()
	if err := waits(c); err != nil || silences != 1 {
		t.Errorf("the wait for an answer ended with %v, reported %d times", err, silences)
	}
}
