package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
)

// metrics shows an operator which stage bounds the store.
type metrics struct {
	engine      *Engine
	registry    prometheus.Registerer
	collectors  []prometheus.Collector
	groupFacts  prometheus.Histogram
	groupBytes  prometheus.Histogram
	decide      prometheus.Histogram
	encode      prometheus.Histogram
	sync        prometheus.Histogram
	rows        prometheus.Counter
	bytes       prometheus.Counter
	checkpoints prometheus.Counter
	expired     prometheus.Counter
	fetched     prometheus.Counter
	coldReads   prometheus.Counter
	listed      prometheus.Counter
	// Sections of the journal.
	sectionsFetched, sectionsDeciding, sectionsRead prometheus.Counter
	replayRows                                      prometheus.Gauge
	replayTime                                      prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, e *Engine) *metrics {
	m := &metrics{engine: e, registry: r}
	times := prometheus.ExponentialBuckets(10e-6, 2, 18) // 10 µs to 1.3 s
	m.groupFacts = m.histogram("group_facts", "Facts decided in one commit group.",
		prometheus.ExponentialBuckets(1, 4, 8))
	m.groupBytes = m.histogram("group_bytes", "Bytes of one journal record.", prometheus.ExponentialBuckets(64, 4, 9))
	m.decide = m.histogram("decide_seconds", "Time to decide one call.", times)
	m.encode = m.histogram("encode_seconds", "Time to encode one commit group.", times)
	m.sync = m.histogram("sync_seconds", "Time of one sync of the journal.", times)
	m.rows = m.counter("rows_total", "Ledger rows made durable.")
	m.bytes = m.counter("journal_written_bytes_total", "Bytes appended to the journal.")
	m.checkpoints = m.counter("checkpoints_total", "Checkpoints of the state.")
	m.expired = m.counter("expired_entities_total", "Entities that were forgotten because they had expired.")
	m.fetched = m.counter("counters_fetched_total",
		"Counters that batches read from the state before they were decided.")
	m.coldReads = m.counter("counters_read_deciding_total", "Counters that deciding read from the state.")
	m.sectionsFetched = m.counter("sections_fetched_total",
		"Sections of the journal that batches read for their corrections before they were decided.")
	m.sectionsDeciding = m.counter("sections_read_deciding_total",
		"Sections of the journal that deciding read, for corrections and conflicts.")
	m.sectionsRead = m.counter("sections_read_total",
		"Sections of the journal that were read for single rows, by readers.")
	m.listed = m.counter("counters_listed_total", "Changed counters in memory that listings looked at.")
	m.replayRows = m.gauge("replay_rows", "Rows that the last start replayed.")
	m.replayTime = m.gauge("replay_seconds", "Time that the last start spent replaying.")
	m.gaugeFunc("queue_facts", "Facts that wait to be decided.", func() float64 { return float64(e.queue.waiting()) })
	m.gaugeFunc("journal_bytes", "Bytes in use in the journal.", func() float64 { return float64(e.journal.Size()) })
	m.gaugeFunc("index_entries", "Keys in the key index.", func() float64 { return float64(e.index.Stats().Entries) })
	m.gaugeFunc("index_runs", "Sorted runs of the key index.", func() float64 { return float64(e.index.Stats().Runs) })
	m.gaugeFunc("index_backlog", "Memory tables of the key index that wait for the disk.", func() float64 {
		return float64(e.index.Backlog())
	})
	m.gaugeFunc("index_waiting_keys", "Keys in memory tables that wait for the disk.", func() float64 {
		return float64(e.index.Waiting())
	})
	m.gaugeFunc("index_merges", "Merges of the key index that were done.", func() float64 {
		return float64(e.index.Stats().MergesDone)
	})
	m.gaugeFunc("index_troubles", "What keeps the key index from its disk: 1 for failing flushes, 1 for failing "+
		"merges, 1 when damage ended merging.", func() float64 {
		return troubles(e.index.Stats())
	})
	m.gaugeFunc("state_bytes", "Bytes of the state on disk.", func() float64 { return float64(e.state.Size()) })
	if s := e.slicer; s != nil {
		m.slices(s)
	}
	m.gaugeFunc("counters_in_memory", "Counters held in memory.", func() float64 {
		e.mu.RLock()
		defer e.mu.RUnlock()
		return float64(e.cells.count)
	})
	m.gaugeFunc("counter_bytes", "Bytes that the counters in memory take.", func() float64 {
		e.mu.RLock()
		defer e.mu.RUnlock()
		return float64(e.cells.slab.Used())
	})
	if r != nil {
		for _, c := range m.collectors {
			r.MustRegister(c)
		}
	}
	return m
}

func troubles(s keyindex.Stats) float64 {
	n := 0.0
	for _, bad := range [...]bool{s.FlushError != nil, s.MergeError != nil, s.Halted} {
		if bad {
			n++
		}
	}
	return n
}

const namespace, subsystem = "tallystick", "engine"

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

func (m *metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	m.collectors = append(m.collectors, g)
	return g
}

// gaugeFunc adds a figure that is looked up when it is asked for. Whoever gathers figures may still be at it when the
// engine closes.
func (m *metrics) gaugeFunc(name, help string, f func() float64) {
	o := prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}
	m.collectors = append(m.collectors, prometheus.NewGaugeFunc(o, func() float64 {
		if m.engine.reads.enter() != nil {
			return 0
		}
		defer m.engine.reads.leave()
		return f()
	}))
}

func (m *metrics) group(g *group, bytes int) {
	rows := 0
	for _, s := range g.sections {
		rows += len(s.rows)
	}
	m.groupFacts.Observe(float64(g.facts))
	m.groupBytes.Observe(float64(bytes))
	m.rows.Add(float64(rows))
	m.bytes.Add(float64(bytes))
}

func (m *metrics) replayed(rows int64, took time.Duration) {
	m.replayRows.Set(float64(rows))
	m.replayTime.Set(took.Seconds())
}

func (m *metrics) unregister() {
	if m.registry != nil {
		for _, c := range m.collectors {
			m.registry.Unregister(c)
		}
	}
}
