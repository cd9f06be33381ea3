// Package redistest gives a test a Redis of its own, on a socket in a temporary folder, that it may stop and start
// again. A test that does not find redis-server, which make deps installs, fails.
package redistest

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
)

// Server is a Redis that keeps nothing when it ends.
type Server struct {
	t      *testing.T
	socket string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has
}

// Start starts a server that ends with the test.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{t: t, socket: filepath.Join(t.TempDir(), "redis.sock")}
	s.Begin()
	t.Cleanup(s.Kill)
	return s
}

// URL is how clients find it. They are patient: a machine that is busy must not look like a server that is gone.
func (s *Server) URL() string {
	return "unix://" + s.socket + "?dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"
}

// Begin starts the server, empty, and returns when it answers.
func (s *Server) Begin() {
	s.t.Helper()
	s.cmd = exec.CommandContext(context.Background(), "redis-server", "--port", "0", "--unixsocket", s.socket, "--save",
		"", "--appendonly", "no", "--dir", filepath.Dir(s.socket), "--loglevel", "warning")
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start redis-server (make deps installs it): %v", err)
	}
	cmd, ended := s.cmd, make(chan struct{})
	s.ended = ended
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	var dialer net.Dialer
	for {
		select {
		case <-ended:
			s.t.Fatal("redis-server ended")
		default:
		}
		if c, err := dialer.DialContext(context.Background(), "unix", s.socket); err == nil {
			_ = c.Close()
			return
		}
	}
}

// Kill ends the server at once. Nothing of it is left when Kill returns.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended already
	<-s.ended
}
