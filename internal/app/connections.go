package app

import (
	"log/slog"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/edge/httpapi"
)

// reservedDescriptors are kept from connections for the store's own files: the journal's segments, key runs, Pebble's
// tables, sorted files, or the connections to a database; and for the rest of the process. Of a small limit it is half.
const reservedDescriptors = 2048

// maxConnections is how many connections the API takes under a limit of open files. More than asked for would leave the
// store none.
func (h *HTTPSettings) maxConnections(limit uint64, log *slog.Logger) int {
	room := int(min(limit, 1<<30))
	room -= min(reservedDescriptors, room/2)
	if h.MaxConnections > room {
		log.Warn("http.max_connections is more than the limit of open files has room for beside the store's own: "+
			"raise that limit",
			"max_connections", h.MaxConnections, "open_files", limit, "taken", room)
	}
	if h.MaxConnections == 0 || h.MaxConnections > room {
		return room
	}
	return h.MaxConnections
}

// openFiles is the process's limit of descriptors, which Go has raised as far as it may.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 30 // a system that has no limit, or does not say
	}
	return limit.Cur
}

// watchConnections shows how many connections there are.
func (m *metrics) watchConnections(api *httpapi.Server) {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "tallystick", Subsystem: "http", Name: name, Help: help}
	}
	counter := func(opts prometheus.Opts, reason string, of func(httpapi.ConnectionCounts) int64) prometheus.Collector {
		opts.ConstLabels = prometheus.Labels{"reason": reason}
		return prometheus.NewCounterFunc(prometheus.CounterOpts(opts), func() float64 {
			return float64(of(api.Connections()))
		})
	}
	refused := name("connections_refused_total",
		"Connections that were refused: all places were taken, or all of their address.")
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(name("connections", "Connections that are open.")),
			func() float64 { return float64(api.Connections().Open) }),
		counter(refused, "all", func(c httpapi.ConnectionCounts) int64 { return c.Refused }),
		counter(refused, "address", func(c httpapi.ConnectionCounts) int64 { return c.Crowded }),
		prometheus.NewCounterFunc(prometheus.CounterOpts(name("connections_displaced_total",
			"Connections without a valid key that were closed to make room for a new one, because all places were "+
				"taken.")),
			func() float64 { return float64(api.Connections().Displaced) }),
	)
}

// watchStreams shows how many streams of rows there are.
func (m *metrics) watchStreams(api *httpapi.Server) {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "tallystick", Subsystem: "http", Name: name, Help: help}
	}
	counter := func(opts prometheus.Opts, of func(httpapi.StreamCounts) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts(opts), func() float64 {
			return float64(of(api.Streams()))
		})
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(name("streams", "Streams of rows that are open.")),
			func() float64 { return float64(api.Streams().Open) }),
		counter(name("streams_dropped_total", "Streams that were ended because their callers read too slowly."),
			func(c httpapi.StreamCounts) int64 { return c.Dropped }),
		counter(name("streams_refused_total",
			"Streams that were refused: all places were taken, or all of their tenant."),
			func(c httpapi.StreamCounts) int64 { return c.Refused }),
	)
}
