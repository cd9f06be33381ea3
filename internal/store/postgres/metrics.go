package postgres

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics shows an operator where a commit spends its time, and what it waits for.
type metrics struct {
	registry     prometheus.Registerer
	collectors   []prometheus.Collector
	transactions prometheus.Counter
	rows         prometheus.Counter
	facts        prometheus.Histogram
	batches      prometheus.Histogram
	lock         prometheus.Histogram
	fetch        prometheus.Histogram
	insert       prometheus.Histogram
	commit       prometheus.Histogram
	retries      *prometheus.CounterVec
	resolved     prometheus.Counter
	busy         prometheus.Counter
	rolled       prometheus.Counter
	rollFailures prometheus.Counter
}

const namespace, subsystem = "tallystick", "postgres"

func newMetrics(r prometheus.Registerer, s *Store) *metrics {
	m := &metrics{registry: r}
	times := prometheus.ExponentialBuckets(50e-6, 2, 18) // 50 µs to 6.6 s
	m.transactions = m.counter("transactions_total", "Transactions committed that added to a ledger.")
	m.rows = m.counter("rows_total", "Ledger rows committed.")
	m.facts = m.histogram("transaction_facts", "Facts decided in one transaction.",
		prometheus.ExponentialBuckets(1, 4, 8))
	m.batches = m.histogram("transaction_batches", "Batches that went together in one transaction.",
		prometheus.ExponentialBuckets(1, 2, 9))
	m.lock = m.histogram("lock_seconds", "Time from the begin of a transaction until it held the tenant's head.", times)
	m.fetch = m.histogram("fetch_seconds", "Time to read what one transaction decides on, after the lock.", times)
	m.insert = m.histogram("insert_seconds", "Time from the last decision until the server had written all of it.",
		times)
	m.commit = m.histogram("commit_seconds", "Time of one COMMIT.", times)
	m.retries = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem,
		Name: "retries_total",
		Help: "Transactions tried again, by what made them fail."}, []string{"cause"})
	m.collectors = append(m.collectors, m.retries)
	m.resolved = m.counter("lost_commits_total", "Commits whose answer was lost and whose outcome was found out.")
	m.busy = m.counter("busy_total", "Batches refused because too much waited.")
	m.rolled = m.counter("rolled_up_rows_total", "Ledger rows whose usage this node added up by the hour.")
	m.rollFailures = m.counter("rollup_failures_total",
		"Attempts to add usage up by the hour that failed; they are tried again, and readers add it up themselves.")
	m.gaugeFunc("queue_facts", "Facts that wait to be committed.", func() float64 {
		n, _ := s.queued()
		return float64(n)
	})
	m.gaugeFunc("queue_bytes", "Bytes of the facts that wait.", func() float64 {
		_, n := s.queued()
		return float64(n)
	})
	m.gaugeFunc("connections", "Connections that are open.", func() float64 {
		return float64(s.pool.Stat().TotalConns())
	})
	m.gaugeFunc("connections_in_use", "Connections that are lent out.", func() float64 {
		return float64(s.pool.Stat().AcquiredConns())
	})
	m.counterFunc("connects_total", "Connections made: those beyond the first few are reconnects.", func() float64 {
		return float64(s.pool.Stat().NewConnsCount())
	})
	m.counterFunc("connection_waits_total", "Times that no connection was free: one was waited for, or made.",
		func() float64 {
			return float64(s.pool.Stat().EmptyAcquireCount())
		})
	m.counterFunc("connection_wait_seconds_total", "Time spent getting connections from the pool.", func() float64 {
		return s.pool.Stat().AcquireDuration().Seconds()
	})
	return m
}

// register shows the figures. A second store needs a registry of its own.
func (m *metrics) register() error {
	if m.registry == nil {
		return nil
	}
	for i, c := range m.collectors {
		if err := m.registry.Register(c); err != nil {
			m.collectors = m.collectors[:i]
			m.unregister()
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

func (m *metrics) unregister() {
	if m.registry != nil {
		for _, c := range m.collectors {
			m.registry.Unregister(c)
		}
	}
}

func (m *metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: name,
		Help: help, Buckets: buckets})
	m.collectors = append(m.collectors, h)
	return h
}

func (m *metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name,
		Help: help})
	m.collectors = append(m.collectors, c)
	return c
}

func (m *metrics) counterFunc(name, help string, f func() float64) {
	m.collectors = append(m.collectors,
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name,
			Help: help}, f))
}

func (m *metrics) gaugeFunc(name, help string, f func() float64) {
	m.collectors = append(m.collectors,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name,
			Help: help}, f))
}
