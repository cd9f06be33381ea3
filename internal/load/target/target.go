// Package target runs a whole server inside the process that measures it: a store, the services, and the HTTP edge on a
// loopback port, put together as for users.
//
// It owns that server's life. It is for measuring only: it keeps no log and takes no configuration.
package target

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallystick/tallystick/internal/edge/httpapi"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/plans"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
)

// Server is a running server.
type Server struct {
	URL string
	Key string // the operator's

	store    store.Store
	http     *http.Server
	listener *httpapi.Listener
	done     chan error // what serving ended with
}

// Start opens a store in the folder, which should be empty, and serves it.
func Start(ctx context.Context, dir string) (*Server, error) {
	figures := prometheus.NewRegistry()
	figures.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	e, err := engine.Open(engine.Options{Dir: dir, Metrics: figures, NoSlices: true})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return Serve(ctx, e, promhttp.HandlerFor(figures, promhttp.HandlerOpts{}))
}

// Serve serves a store, which should be empty, and closes it when it is closed itself or cannot serve.
func Serve(ctx context.Context, s store.Store, metrics http.Handler) (*Server, error) {
	server, err := serve(ctx, s, metrics)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return server, nil
}

func serve(ctx context.Context, served store.Store, metrics http.Handler) (*Server, error) {
	requests, joined := idempotency.New(idempotency.Options{Store: served})
	r := registry.New(joined, rand.Reader)
	key, created, err := r.OperatorKey(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the operator's key: %w", err)
	}
	if !created {
		return nil, errors.New("the store has an operator's key already, which cannot be had again: use an empty " +
			"folder")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	api := httpapi.New(httpapi.Options{Store: served, Gate: gate.New(served, gate.Options{}), Registry: r,
		Billing: billing.New(joined), Plans: plans.New(joined), Windows: windows.New(served), Requests: requests,
		Metrics: metrics})
	s := &Server{URL: "http://" + listener.Addr().String(), Key: key, store: served, http: api.HTTPServer(""),
		listener: api.Listen(listener), done: make(chan error, 1)}
	go func() { s.done <- s.http.Serve(s.listener) }()
	return s, nil
}

// Store is the store behind the server.
func (s *Server) Store() store.Store { return s.store }

// drainTimeout bounds how long requests under way may still take.
const drainTimeout = 10 * time.Second

// Close stops serving and closes the store.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	s.listener.Wait()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, s.store.Close())
}
