package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/limit"
)

// metrics are the figures of the edge and the gate; the store brings its own.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	events   *prometheus.CounterVec
	verdicts [usage.Withheld + 1]prometheus.Counter
	keyed    *prometheus.CounterVec
	changes  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	alone    prometheus.Counter
	turns    prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Subsystem: "http",
			Name: "requests_total",
			Help: "Requests answered, by route and status."}, []string{"method", "route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tallystick", Subsystem: "http",
			Name: "request_seconds",
			Help: "Time to answer a request.", Buckets: prometheus.ExponentialBuckets(50e-6, 2.5, 12)},
			[]string{"method", "route"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Name: "events_total",
			Help: "Usage events judged, by verdict. Conflicts are facts that somebody believes to be billed and are " +
				"not; withheld ones had a refused neighbor in an atomic batch."}, []string{"status"}),
		keyed: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick",
			Name: "idempotent_requests_total",
			Help: "Writes with an Idempotency-Key, by what became of them: first, replayed, reused with another " +
				"request, in use."}, []string{"outcome"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Name: "audit_events_total",
			Help: "Changes that callers and schedules committed, by type and source."}, []string{"type", "source"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Subsystem: "ratelimit",
			Name: "refused_total",
			Help: "Requests refused by a rate limit, by whose it is and what was too many."},
			[]string{"by", "dimension"}),
		alone: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "tallystick", Subsystem: "ratelimit",
			Name: "shared_failures_total",
			Help: "Requests whose rate limit this node judged by itself, because what the nodes share did not " +
				"answer."}),
		turns: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "tallystick", Name: "turn_wait_seconds",
			Help:    "Time that large batches waited for their turn, because another tenant sent little.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2.5, 10)}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.requests, m.took, m.events, m.keyed,
		m.changes, m.refused, m.alone, m.turns)
	for s := usage.Accepted; s <= usage.Withheld; s++ {
		m.verdicts[s] = m.events.WithLabelValues(s.String())
	}
	return m
}

func (m *metrics) answered(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(method, route).Observe(took.Seconds())
}

func (m *metrics) repeated(o idempotency.Outcome) { m.keyed.WithLabelValues(string(o)).Inc() }

func (m *metrics) changed(_ string, e audit.Event) { m.changes.WithLabelValues(e.Type, e.Source).Inc() }

func (m *metrics) waited(d time.Duration) { m.turns.Observe(d.Seconds()) }

func (m *metrics) limited(by limit.By, of limit.Dimension) {
	m.refused.WithLabelValues(string(by), of.String()).Inc()
}

func (m *metrics) judged(verdicts []usage.Verdict) {
	var n [len(m.verdicts)]int
	for i := range verdicts {
		n[verdicts[i].Status]++
	}
	for s, count := range n {
		if count > 0 {
			m.verdicts[s].Add(float64(count))
		}
	}
}
