package natstest

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Given a stream with a message in it, when the server stops and begins again, then the message is there at the same
// address.
func TestServerComesAndGoes(t *testing.T) {
	s := Start(t)
	address := s.Address()
	connect := func() (*nats.Conn, jetstream.JetStream) {
		conn, err := nats.Connect("nats://" + address)
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		return conn, js
	}
	conn, js := connect()
	config := jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "kept", []byte("seven")); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	s.Stop()
	if conn, err := nats.Connect("nats://" + address); err == nil {
		conn.Close()
		t.Error("a server that stopped answers")
	}
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	conn, js = connect()
	defer conn.Close()
	kept, err := js.Stream(t.Context(), "KEPT")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := kept.GetMsg(t.Context(), 1); err != nil || string(m.Data) != "seven" {
		t.Errorf("the stream holds %v, %v", m, err)
	}
}
