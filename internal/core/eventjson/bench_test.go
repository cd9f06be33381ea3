package eventjson

import (
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/usage"
)

// The example of the published contract, and what other senders make of it.
const (
	exampleEvent = `{"id":"req_8f2","meter":"api_calls","customer":"cus_42","resource":"gpt-9",` +
		`"time":"2026-11-15T02:10:00Z","quantity":"3","properties":{"region":"eu"}}`
	bareEvent   = `{"id":"req_8f2","meter":"api_calls","customer":"cus_42","time":1794708600000,"quantity":3}`
	spacedEvent = `{"id": "req_8f2", "meter": "api_calls", "customer": "cus_42", "time": "2026-11-15T02:10:00Z", ` +
		`"quantity": 3, "properties": {"region": "eu", "model": "gpt-9", "tokens": 1.50}}`
	escapedEvent = `{"id":"req\/8f2","meter":"api_calls","customer":"Zo\u00eb & ` +
		`Söhne","time":"2026-11-15T03:10:00.123456789+01:00","quantity":"3",` +
		`"properties":{"url":"https:\/\/example.com\/"}}`
	cloudEvent = `{"specversion":"1.0","id":"8f2","source":"/gateway","type":"llm_call","subject":"cus_42",` +
		`"time":"2026-11-15T02:10:00Z","data":{"region":"eu","tokens":12}}`
)

// arrayOf returns a batch of n copies of an event.
func arrayOf(event string, n int) []byte {
	return []byte("[" + strings.TrimSuffix(strings.Repeat(event+",", n), ",") + "]")
}

func BenchmarkDecode(b *testing.B) {
	const events = 1000
	for _, c := range []struct {
		name, event string
		decode      func([]byte, []usage.Event) (Batch, error)
	}{
		{"example", exampleEvent, Decode},
		{"bare", bareEvent, Decode},
		{"spaced", spacedEvent, Decode},
		{"escaped", escapedEvent, Decode},
		{"cloud", cloudEvent, DecodeCloudEvents},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := arrayOf(c.event, events)
			into := make([]usage.Event, 0, events)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if batch, err := c.decode(body, into); err != nil || len(batch.Events) != events {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
