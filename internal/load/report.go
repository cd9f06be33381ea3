package load

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Report is what a run saw.
type Report struct {
	Events     int64 `json:"events"`
	Accepted   int64 `json:"accepted"`
	Duplicates int64 `json:"duplicates"`
	Requests   int64 `json:"requests"`
	Retries    int64 `json:"retries"` // requests sent again because the server was busy

	Seconds           float64 `json:"seconds"`
	EventsPerSecond   float64 `json:"events_per_second"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	Latency           Latency `json:"latency_us"`
	BodyBytes         float64 `json:"body_bytes_per_event"`

	// What the server's metrics showed, if they could be read: CPU time of its process and bytes appended to its
	// journal.
	ServerCPUSeconds *float64 `json:"server_cpu_seconds,omitempty"`
	ServerCPUMicros  *float64 `json:"server_cpu_us_per_event,omitempty"`
	JournalBytes     *float64 `json:"journal_bytes_per_event,omitempty"`

	Proved       bool    `json:"totals_proved"`
	Counters     int     `json:"counters_compared"`
	ProofSeconds float64 `json:"proof_seconds"`
}

// Latency is of requests, from the first byte sent to the last byte of the answer, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

func (r *run) report(lanes []*lane, elapsed time.Duration) *Report {
	out := &Report{Seconds: elapsed.Seconds()}
	var latencies Histogram
	var sent int64
	for _, l := range lanes {
		out.Accepted += l.fresh
		out.Duplicates += l.repeated
		out.Requests += l.requests
		out.Retries += l.sender.Retries
		sent += l.sender.Sent
		latencies.Merge(&l.latencies)
	}
	out.Events = out.Accepted + out.Duplicates
	out.EventsPerSecond = float64(out.Events) / out.Seconds
	out.RequestsPerSecond = float64(out.Requests) / out.Seconds
	out.BodyBytes = float64(sent) / float64(max(out.Events, 1))
	out.Latency = LatencyOf(&latencies)
	return out
}

// LatencyOf reads the quantiles that reports show.
func LatencyOf(h *Histogram) Latency {
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return Latency{micros(h.Quantile(500)), micros(h.Quantile(990)), micros(h.Quantile(999)), micros(h.Quantile(1000))}
}

// The figures that are looked for among the server's metrics.
const (
	cpuMetric     = "process_cpu_seconds_total"
	journalMetric = "tallystick_engine_journal_written_bytes_total"
)

// scrape reads the server's own figures. A server may keep none, or keep them elsewhere: then the map is empty.
func scrape(ctx context.Context, u *url.URL, key string) map[string]float64 {
	found := map[string]float64{}
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("/metrics").String(), nil)
	if err != nil {
		return found
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Close = true
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return found
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return found
	}
	lines := bufio.NewScanner(io.LimitReader(answer.Body, maxAnswer))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || name != cpuMetric && name != journalMetric {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
			found[name] = v
		}
	}
	return found
}

const scrapeTimeout = 5 * time.Second

func (r *Report) serverFigures(before, after map[string]float64) {
	if spent, ok := difference(before, after, cpuMetric); ok {
		each := spent * 1e6 / float64(max(r.Events, 1))
		r.ServerCPUSeconds, r.ServerCPUMicros = &spent, &each
	}
	if written, ok := difference(before, after, journalMetric); ok {
		each := written / float64(max(r.Accepted, 1))
		r.JournalBytes = &each
	}
}

func difference(before, after map[string]float64, name string) (float64, bool) {
	from, known := before[name]
	to, still := after[name]
	return to - from, known && still
}
