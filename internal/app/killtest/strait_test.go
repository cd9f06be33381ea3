package killtest

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/internal/pgtest"
)

// strait is a way to a server that can be blocked: connections stay, and nothing passes. So looks a host that lost its
// power, or a network that was cut, until somebody gives up waiting.
type strait struct {
	dir string // of its socket

	mu   sync.Mutex // guards open
	open chan struct{}
}

const socketName = ".s.PGSQL.5432"

func newStrait(t *testing.T, server *pgtest.Server) *strait {
	t.Helper()
	// Not the test's own: the path of a socket has about a hundred bytes.
	dir, err := os.MkdirTemp("/tmp", "strait")
	if err != nil {
		t.Fatal(err)
	}
	s := &strait{dir: dir, open: make(chan struct{})}
	close(s.open)
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", filepath.Join(server.Socket(), socketName))
			if err != nil {
				_ = client.Close() // as the server that is not there would
				continue
			}
			carrying.Go(func() { s.carry(up, client) })
			carrying.Go(func() { s.carry(client, up) })
		}
	})
	t.Cleanup(func() {
		s.unblock()
		_ = l.Close()
		carrying.Wait()
		_ = os.RemoveAll(dir)
	})
	return s
}

// carry copies until either end is closed, and then closes the other.
func (s *strait) carry(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		open := s.open
		s.mu.Unlock()
		<-open
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (s *strait) block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = make(chan struct{})
}

// unblock may be called again.
func (s *strait) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.open:
	default:
		close(s.open)
	}
}
