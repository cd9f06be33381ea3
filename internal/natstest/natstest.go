// Package natstest gives a test a NATS server with JetStream, in the test's own process, its data in a temporary
// folder. It can be stopped and started again at the same address with the same data.
package natstest

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallystick/tallystick/internal/loopback"
)

// readyTimeout bounds a start on a busy machine.
const readyTimeout = time.Minute

// Server is a NATS server of one node. Begin and Stop are for one goroutine.
type Server struct {
	options server.Options
	running *server.Server // nil while it is down
}

// Start starts a server that ends with the test. Changes are made to its options before.
func Start(t testing.TB, changes ...func(*server.Options)) *Server {
	t.Helper()
	host, port := loopback.Split(loopback.Address())
	s := &Server{options: server.Options{Host: host, Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		NoLog: true}}
	for _, change := range changes {
		change(&s.options)
	}
	t.Cleanup(s.Stop)
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Begin starts the server, after Stop too, and returns when it takes connections.
func (s *Server) Begin() error {
	options := s.options // a server writes into its own
	running, err := server.NewServer(&options)
	if err != nil {
		return err
	}
	running.Start()
	s.running = running
	if !running.ReadyForConnections(readyTimeout) {
		return errors.New("natstest: the server does not take connections")
	}
	return nil
}

// URL is how clients find it.
func (s *Server) URL() string { return "nats://" + s.Address() }

// Address is its host and port.
func (s *Server) Address() string { return loopback.Join(s.options.Host, s.options.Port) }

// Stop ends the server and its connections. Nothing of it runs when Stop returns; what it acknowledged is kept.
func (s *Server) Stop() {
	if s.running == nil {
		return
	}
	s.running.Shutdown()
	s.running.WaitForShutdown()
	s.running = nil
}
