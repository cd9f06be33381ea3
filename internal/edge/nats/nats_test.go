package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/loopback"
	"github.com/tallystick/tallystick/internal/natstest"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink makes a Sink that ends with the test.
func sink(t *testing.T, o Options) *Sink {
	t.Helper()
	if o.Subject == "" {
		o.Subject = "rows"
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// delivery holds n rows from a seq on, each with a body of size bytes or a little more.
func delivery(tenant string, from uint64, n, size int) *sinks.Delivery {
	d := &sinks.Delivery{ID: "d" + strconv.FormatUint(from, 10), Tenant: tenant, Sink: "s", Epoch: 3, From: from,
		To: from + uint64(n) - 1}
	for seq := d.From; seq <= d.To; seq++ {
		d.Rows = append(d.Rows, sinks.Row{Seq: seq, Type: "usage.recorded", Key: "c1",
			Body: fmt.Appendf(nil, `{"seq":%d,"of":%q}`, seq, bytes.Repeat([]byte("x"), size))})
	}
	return d
}

// receiver is a client of a server, until the test ends.
func receiver(t *testing.T, s *natstest.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, js
}

// stream makes or changes the stream that takes the subject.
func stream(t *testing.T, s *natstest.Server, change func(*jetstream.StreamConfig)) {
	t.Helper()
	_, js := receiver(t, s)
	config := jetstream.StreamConfig{Name: "ROWS", Subjects: []string{"rows"}}
	change(&config)
	if _, err := js.CreateOrUpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

func unchanged(*jetstream.StreamConfig) {}

// messages are all that the stream holds, in its order.
func messages(t *testing.T, s *natstest.Server) []*jetstream.RawStreamMsg {
	t.Helper()
	_, js := receiver(t, s)
	rows, err := js.Stream(t.Context(), "ROWS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := rows.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []*jetstream.RawStreamMsg
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := rows.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// inOrder checks what a receiver sees that keeps the first message of each id: the rows from 1 to n of a tenant in
// ledger order, and the same content under an id each time.
func inOrder(t *testing.T, all []*jetstream.RawStreamMsg, tenant string, n int) {
	t.Helper()
	first := map[string][]byte{}
	var seqs []string
	for _, m := range all {
		id := m.Header.Get("tally-id")
		seq, ofTenant := strings.CutPrefix(id, tenant+":3:")
		if !ofTenant {
			continue
		}
		if had, again := first[id]; again {
			if !bytes.Equal(had, m.Data) {
				t.Errorf("%s came again with another content", id)
			}
			continue
		}
		first[id] = m.Data
		seqs = append(seqs, seq)
	}
	for i := range n {
		if i >= len(seqs) || seqs[i] != strconv.Itoa(i+1) {
			t.Fatalf("the rows of %s arrived as %v, want 1 to %d", tenant, seqs, n)
		}
	}
	if len(seqs) != n {
		t.Errorf("%d rows of %s arrived, want %d", len(seqs), tenant, n)
	}
}

func TestWhatArrives(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	s := sink(t, Options{Servers: []string{broker.URL()}})
	d := &sinks.Delivery{ID: "d1", Tenant: "acme", Sink: "s", Epoch: 2, From: 7, To: 8, Rows: []sinks.Row{
		{Seq: 7, Type: "usage.recorded", Key: "c1", Body: []byte(`{"seq":7}`)},
		{Seq: 8, Type: "meter.created", Body: []byte(`{"seq":8}`)},
	}}
	replayed := &sinks.Delivery{Tenant: "acme", Epoch: 2, From: 6, To: 7, Replayed: true, Rows: []sinks.Row{
		{Seq: 6, Type: "entry.recorded", Key: "A10", Body: []byte(`{"seq":6}`)}, d.Rows[0]}}
	for _, d := range []*sinks.Delivery{d, {Tenant: "acme", From: 9, To: 9}, replayed} {
		if err := s.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, m := range messages(t, broker) {
		for _, name := range []string{"Nats-Msg-Id", "tally-id", "tally-type", "content-type", "tally-replayed"} {
			got = append(got, m.Header.Get(name))
		}
		got = append(got, string(m.Data))
	}
	want := []string{
		"acme:2:7", "acme:2:7", "usage.recorded", "application/json", "", `{"seq":7}`,
		"acme:2:8", "acme:2:8", "meter.created", "application/json", "", `{"seq":8}`,
		"acme:2:6", "acme:2:6", "entry.recorded", "application/json", "true", `{"seq":6}`,
		// The stream knows row 7 already.
	}
	if !slices.Equal(got, want) {
		t.Errorf("what arrived is\n%q, want\n%q", got, want)
	}
}

// Given a stream that takes no large row, when one is in the middle of a delivery, then the error names it and no row
// behind it is in the stream; when the stream takes it, then all rows are in order.
func TestNothingOvertakesARefusedRow(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
	s := sink(t, Options{Servers: []string{broker.URL()}})
	d := delivery("acme", 1, 3*window, 10)
	d.Rows[window+9].Body = bytes.Repeat([]byte("x"), 2000)
	err := s.Deliver(t.Context(), d)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %d of 2000 bytes", window+10)) ||
		!strings.Contains(err.Error(), "raise its maximum message size") {
		t.Fatalf("the error is %v", err)
	}
	inOrder(t, messages(t, broker), "acme", window+9)
	stream(t, broker, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10_000 })
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	all := messages(t, broker)
	inOrder(t, all, "acme", 3*window)
	if len(all) != 3*window {
		t.Errorf("%d messages are in the stream, want each once", len(all))
	}
}

func TestARowThatTheServerDoesNotTake(t *testing.T) {
	broker := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 2000 })
	stream(t, broker, unchanged)
	s := sink(t, Options{Servers: []string{broker.URL()}})
	d := delivery("acme", 1, 3, 10)
	d.Rows[1].Body = bytes.Repeat([]byte("x"), 3000)
	err := s.Deliver(t.Context(), d)
	if err == nil || !strings.Contains(err.Error(), "row 2 of 3000 bytes") ||
		!strings.Contains(err.Error(), "raise its max_payload") {
		t.Errorf("the error is %v", err)
	}
}

// Given others that write to the stream between the rows of a delivery, when they do, then every row arrives once and
// in order all the same.
func TestOthersWriteToTheStream(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	_, js := receiver(t, broker)
	d := &breaking{broken: func(c net.Conn, b []byte) (int, error) {
		if _, err := js.Publish(t.Context(), "rows", []byte("of others")); err != nil {
			t.Error(err)
		}
		return c.Write(b)
	}}
	s := sink(t, Options{Servers: []string{broker.URL()}, Dial: d.dial})
	deliver(t, s, delivery("acme", 1, 10, 10))
	d.breakAfter(2) // in the middle: the client writes 32 KiB at a time
	deliver(t, s, delivery("acme", 11, 2*window, 1000))
	all := messages(t, broker)
	inOrder(t, all, "acme", 10+2*window)
	if len(all) != 11+2*window {
		t.Errorf("%d messages are in the stream, want each once, and one of others", len(all))
	}
}

// Given several tenants that share a sink, when they deliver at once, then each has its rows in order.
func TestTenantsSideBySide(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	s := sink(t, Options{Servers: []string{broker.URL()}})
	var tenants sync.WaitGroup
	for tenant := range 4 {
		tenants.Go(func() {
			for from := uint64(1); from < 600; from += 200 {
				if err := s.Deliver(t.Context(), delivery(fmt.Sprintf("t%d", tenant), from, 200, 20)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	tenants.Wait()
	all := messages(t, broker)
	for tenant := range 4 {
		inOrder(t, all, fmt.Sprintf("t%d", tenant), 600)
	}
	if len(all) != 2400 {
		t.Errorf("%d messages are in the stream, want each once", len(all))
	}
}

func TestASubjectThatNoStreamTakes(t *testing.T) {
	broker := natstest.Start(t)
	s := sink(t, Options{Servers: []string{broker.URL()}})
	d := delivery("acme", 1, 3, 10)
	err := s.Deliver(t.Context(), d)
	if err == nil || !strings.Contains(err.Error(), "deliver to subject rows: no stream takes this subject") {
		t.Fatalf("the error is %v", err)
	}
	stream(t, broker, unchanged)
	if err := s.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	inOrder(t, messages(t, broker), "acme", 3)
}

// Given servers that are down, when a delivery is tried, then it fails with the reason; when they come up, then the
// same sink delivers.
func TestServersThatComeLater(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	broker.Stop()
	s := sink(t, Options{Servers: []string{broker.URL()}})
	err := s.Deliver(t.Context(), delivery("acme", 1, 3, 10))
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "no server answers") {
		t.Fatalf("the error is %v", err)
	}
	if err := broker.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := s.Deliver(t.Context(), delivery("acme", 1, 3, 10)); err != nil {
		t.Fatal(err)
	}
	inOrder(t, messages(t, broker), "acme", 3)
}

// Given a subject on which somebody listens who acknowledges nothing, when a delivery's time is over or its caller
// gives up, then it ends.
func TestAcknowledgementsThatDoNotCome(t *testing.T) {
	broker := natstest.Start(t)
	conn, _ := receiver(t, broker)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := conn.Subscribe("rows", func(m *nats.Msg) {
		if m.Header.Get("tally-id") == "globex:3:2" {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	s := sink(t, Options{Servers: []string{broker.URL()}, Timeout: 100 * time.Millisecond})
	if err := s.Deliver(t.Context(), delivery("acme", 1, 2, 10)); !errors.Is(err, errTimeout) {
		t.Errorf("the error is %v", err)
	}
	s = sink(t, Options{Servers: []string{broker.URL()}, Timeout: time.Hour})
	if err := s.Deliver(ctx, delivery("globex", 1, 2, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// Given servers that take connections and never answer, when a delivery is tried, then it ends when its own time is
// over, and not when the client's is; and a second that waits for the first ends with its caller.
func TestAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sink(t, Options{Servers: []string{"nats://silent"}, Timeout: time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }() // until ours is closed
				return ours, nil
			}})
		began := time.Now()
		first := make(chan error)
		go func() { first <- s.Deliver(t.Context(), delivery("acme", 1, 5, 10)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := s.Deliver(ctx, delivery("globex", 1, 5, 10))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Millisecond {
			t.Errorf("the one that waits took %v: %v", took, err)
		}
		err = <-first
		if took := time.Since(began); !errors.Is(err, errTimeout) || took != time.Second {
			t.Errorf("the delivery took %v: %v", took, err)
		}
	})
}

// Given a server by its name, when the sink connects, then the name is looked up by the given Dial and nobody else.
func TestEveryConnectionIsDialedAsGiven(t *testing.T) {
	broker := natstest.Start(t)
	stream(t, broker, unchanged)
	var dialed []string
	s := sink(t, Options{Servers: []string{"nats://localhost"},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			return new(net.Dialer).DialContext(ctx, network, broker.Address())
		}})
	if err := s.Deliver(t.Context(), delivery("acme", 1, 1, 10)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(dialed, []string{"localhost:4222"}) {
		t.Errorf("dialed were %v", dialed)
	}
}

func TestNoErrorShowsAPassword(t *testing.T) {
	broker := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "ada", "right" })
	for _, text := range []string{"nats://ada:hunter2@" + broker.Address(), "nats://ada:hunter2@" + loopback.Address(),
		"nats://ada:hunter2@host name", "http://ada:hunter2@host", "nats://ada:hunter2@host:0",
		"nats://ada:hunter2@host/path", "nats://ada:hunter2@", "nats://ada:hunter2@host?x=1",
		"nats://ada:hunter2@host:x",
	} {
		s, err := New(Options{Servers: []string{text}, Subject: "rows"})
		if err == nil {
			err = s.Deliver(t.Context(), delivery("acme", 1, 1, 10))
		}
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, subject := range []string{"", ".", "a..b", "a.", "a b", "a.*", "a.>", "$JS.API", "_INBOX.x", "a\r\nPUB",
		strings.Repeat("a", 256)} {
		if _, err := New(Options{Servers: []string{"nats://host"}, Subject: subject}); err == nil {
			t.Errorf("the subject %q is accepted", subject)
		}
	}
	if _, err := New(Options{Subject: "rows"}); err == nil {
		t.Error("no server is accepted")
	}
	s, err := New(Options{Servers: []string{"nats://[::1]", "tls://host:1"}, Subject: "acme.rows"})
	if err != nil || !slices.Equal(s.o.Servers, []string{"nats://[::1]:4222", "tls://host:1"}) {
		t.Errorf("the servers are %v, %v", s, err)
	}
}
