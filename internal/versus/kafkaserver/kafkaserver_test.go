package kafkaserver

import (
	"net"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Given a topic with a record in it, when the broker is killed and begins again, then the record is there at the same
// address, and in the end nothing is left.
func TestServerComesAndGoes(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := s.CreateTopic(ctx, "kept", 1); err != nil {
		t.Fatal(err)
	}
	writer, err := kgo.NewClient(kgo.SeedBrokers(s.Address()), kgo.DefaultProduceTopic("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.ProduceSync(ctx, kgo.StringRecord("seven")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	s.Kill()
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(s.Address()), kgo.ConsumeTopics("kept"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	fetched := reader.PollFetches(ctx)
	if err := fetched.Err(); err != nil {
		t.Fatal(err)
	}
	if got := fetched.Records(); len(got) != 1 || string(got[0].Value) != "seven" {
		t.Errorf("the topic holds %v", got)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
	if conn, err := net.Dial("tcp", s.Address()); err == nil {
		t.Errorf("a server that was stopped answers: %v", conn.Close())
	}
}
