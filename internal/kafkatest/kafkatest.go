// Package kafkatest gives tests a real Apache Kafka, which they kill and start again. Tests of a binary share one; a
// test that does not find Java or the jars, which make deps installs, fails.
package kafkatest

import (
	"sync"
	"testing"

	"github.com/tallystick/tallystick/internal/versus/kafkaserver"
)

// Server is a Kafka of one node.
type Server = kafkaserver.Server

// shared is the server of the test binary.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns the binary's server, starting it when it is first needed. A test that kills it begins it again. The
// binary's TestMain calls Cleanup.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = kafkaserver.Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Cleanup stops the shared server if it was started.
func Cleanup() error {
	if shared.server == nil {
		return nil
	}
	return shared.server.Stop()
}
