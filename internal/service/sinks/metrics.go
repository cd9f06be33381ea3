package sinks

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/sink"
)

// metrics are a runner's figures.
type metrics struct {
	deliveries *prometheus.CounterVec
	rows       *prometheus.CounterVec
	lag        prometheus.Gauge
}

func newMetrics(into prometheus.Registerer) *metrics {
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Subsystem: "sinks",
			Name: "deliveries_total", Help: "Attempts to deliver, by kind of sink and outcome."},
			[]string{"kind", "outcome"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tallystick", Subsystem: "sinks",
			Name: "rows_total", Help: "Rows that receivers have taken, by kind of sink."}, []string{"kind"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tallystick", Subsystem: "sinks", Name: "lag_rows",
			Help: "Rows that the sink that is furthest behind has not delivered yet."}),
	}
	if into != nil {
		into.MustRegister(m.deliveries, m.rows, m.lag)
	}
	return m
}

func (m *metrics) delivered(w sink.Way, rows int) {
	m.deliveries.WithLabelValues(w.String(), "delivered").Inc()
	m.rows.WithLabelValues(w.String()).Add(float64(rows))
}

func (m *metrics) failed(w sink.Way) { m.deliveries.WithLabelValues(w.String(), "failed").Inc() }

func (m *metrics) behind(rows uint64) { m.lag.Set(float64(rows)) }
