package app

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tallystick/tallystick/internal/core/usage"
)

// metrics are the figures of the edge and the gate; the store brings its own.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	events   *prometheus.CounterVec
	verdicts [usage.Rejected + 1]prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Subsystem: "http", Name: "requests_total",
			Help: "Requests answered, by route and status."}, []string{"method", "route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "tallystick", Subsystem: "http", Name: "request_seconds",
			Help: "Time to answer a request.", Buckets: prometheus.ExponentialBuckets(50e-6, 2.5, 12)}, []string{"method", "route"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Name: "events_total",
			Help: "Usage events judged, by verdict. Conflicts are facts that somebody believes to be billed and are not."}, []string{"status"}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.requests, m.took, m.events)
	for s := usage.Accepted; s <= usage.Rejected; s++ {
		m.verdicts[s] = m.events.WithLabelValues(s.String())
	}
	return m
}

func (m *metrics) answered(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(method, route).Observe(took.Seconds())
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
