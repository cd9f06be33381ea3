package kafka

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallystick/tallystick/internal/kafkatest"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range []func() error{kafkatest.Cleanup, func() error { return goleak.Find() }} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// sink makes a Sink that ends with the test.
func sink(t *testing.T, o Options) *Sink {
	t.Helper()
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

// delivery holds n rows from a seq on, of so many customers in turn, each with a body of size bytes or a little more.
func delivery(tenant string, from uint64, n, customers, size int) *sinks.Delivery {
	d := &sinks.Delivery{ID: "d" + strconv.FormatUint(from, 10), Tenant: tenant, Sink: "s", Epoch: 3, From: from,
		To: from + uint64(n) - 1}
	for seq := d.From; seq <= d.To; seq++ {
		d.Rows = append(d.Rows, sinks.Row{Seq: seq, Type: "usage.recorded", Key: fmt.Sprintf("c%d", int(seq)%customers),
			Body: fmt.Appendf(nil, `{"seq":%d,"of":%q}`, seq, bytes.Repeat([]byte("x"), size))})
	}
	return d
}

// topic reads n messages of a topic, or all that come until ctx ends, each partition in its order.
func topic(ctx context.Context, t *testing.T, broker, name string, enough func([]*kgo.Record) bool) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(name),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out []*kgo.Record
	for !enough(out) {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			t.Fatalf("read %s: %v, after %d messages", name, err, len(out))
		}
		out = append(out, fetched.Records()...)
	}
	return out
}

// hasRows reports whether all rows from 1 to n of a tenant are among messages.
func hasRows(tenant string, n int) func([]*kgo.Record) bool {
	return func(all []*kgo.Record) bool {
		seen := map[string]bool{}
		for _, m := range all {
			if strings.HasPrefix(header(m, "tally-id"), tenant+":") {
				seen[header(m, "tally-id")] = true
			}
		}
		return len(seen) >= n
	}
}

func header(m *kgo.Record, name string) string {
	i := slices.IndexFunc(m.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(m.Headers[i].Value)
}

// inOrder checks what a receiver sees that keeps the first message of each id: all rows from 1 to n, those of a key in
// ledger order, and the same content under an id each time.
func inOrder(t *testing.T, all []*kgo.Record, tenant string, n int) {
	t.Helper()
	first := map[string]*kgo.Record{}
	last := map[string]int{} // by key
	for _, m := range all {
		id := header(m, "tally-id")
		seq, ofTenant := strings.CutPrefix(id, tenant+":3:")
		if !ofTenant {
			continue
		}
		if had := first[id]; had != nil {
			if !bytes.Equal(had.Value, m.Value) || !bytes.Equal(had.Key, m.Key) || had.Partition != m.Partition {
				t.Errorf("%s came again with another content", id)
			}
			continue
		}
		first[id] = m
		at, err := strconv.Atoi(seq)
		if err != nil {
			t.Fatal(err)
		}
		if at <= last[string(m.Key)] {
			t.Errorf("row %d came after row %d of the same key %s", at, last[string(m.Key)], m.Key)
		}
		last[string(m.Key)] = at
	}
	if len(first) != n {
		t.Errorf("%d rows of %s arrived, want %d", len(first), tenant, n)
	}
}
