package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpapi"
	"github.com/tallystick/tallystick/internal/edge/redis"
	"github.com/tallystick/tallystick/internal/service/billing"
	"github.com/tallystick/tallystick/internal/service/idempotency"
	"github.com/tallystick/tallystick/internal/service/plans"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/service/windows"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
)

// ServerOptions is what a Server is started with.
type ServerOptions struct {
	Settings Settings
	// Logger gets what the server logs. Required.
	Logger *slog.Logger
	// Fatal is called with a failure after which the process must end at once. Default: it is logged and the process
	// exits with code 1.
	Fatal func(error)
}

// Server is a server that runs: a store, the API on a listener, and perhaps a listener for metrics. It starts in the
// order listen, open, make the operator's key, serve, so that a taken port is found before anything is made; it ends in
// the opposite order.
type Server struct {
	settings    Settings
	log         *slog.Logger
	store       store.Store
	api         *httpapi.Server
	operatorKey string
	servers     []*http.Server
	listeners   []net.Listener // of the servers, in order
	requests    *httpapi.Listener
	tls         *tls.Config // nil: plain HTTP
	failed      chan error  // takes the first listener that fails
	serving     sync.WaitGroup
	billing     *billing.Service
	sinks       *sinks.Runner
	storage     retention.Storage // nil: there is no archive
	limits      *redis.Limits     // nil: the nodes share none
	stopJobs    func()
	working     sync.WaitGroup // the jobs
	ended       sync.Once
	endErr      error
}

// Start starts a server, which answers when Start returns.
func Start(ctx context.Context, o ServerOptions) (s *Server, err error) {
	s = &Server{settings: o.Settings, log: o.Logger, failed: make(chan error, 1)}
	if err := o.Settings.check(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
			s = nil
		}
	}()
	if s.tls, err = o.Settings.TLS.config(o.Logger); err != nil {
		return s, err
	}
	for _, addr := range []string{o.Settings.Listen, o.Settings.MetricsListen} {
		if addr == "" {
			continue
		}
		if err := s.listen(ctx, addr); err != nil {
			return s, err
		}
	}
	if err := s.open(ctx, o.Fatal); err != nil {
		return s, err
	}
	for i := range s.servers {
		s.serve(s.servers[i], s.listeners[i])
	}
	s.startJobs()
	return s, nil
}

func (s *Server) listen(ctx context.Context, addr string) error {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is taken by another process: stop it, or choose another address (port 0 takes a free "+
			"one): %w", addr, err)
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.listeners = append(s.listeners, l)
	return nil
}

// open opens the store and puts the services on it.
func (s *Server) open(ctx context.Context, fatal func(error)) error {
	if fatal == nil {
		fatal = s.exit
	}
	m := newMetrics()
	began := time.Now()
	var err error
	s.store, err = openStore(ctx, &s.settings, engine.Options{
		Fatal: fatal, Metrics: m.registry, Progress: s.replayed(began),
		Damaged: func(err error) { s.log.Warn("a derived file is damaged: look at the disk", "error", err) },
	})
	if err != nil {
		return err
	}
	kept := s.store // as it is, without what an archive adds
	if s.storage, err = s.settings.Retention.storage(ctx); err != nil {
		return err
	}
	if s.storage != nil {
		s.store = retention.NewReading(s.store, s.storage)
	}
	s.log.Info("store open", "store", shownStore(&s.settings), "took", time.Since(began).Round(time.Millisecond))
	limiter, err := s.limiter(m)
	if err != nil {
		return err
	}
	out := s.settings.carriers(s.settings.vault())
	s.sinks = s.sinkRunner(s.store, out, m)
	requests, joined := idempotency.New(idempotency.Options{Store: s.store, Keep: s.settings.Requests.Keep,
		Admit: s.settings.Requests.admit(limiter), Observe: m.repeated,
		Committed: func(tenantID string, e audit.Event) {
			m.changed(tenantID, e)
			s.sinks.Committed(tenantID, e)
		}})
	keys := registry.New(joined, rand.Reader)
	// Once begun this is not given up: a key that was made and never shown would be lost.
	firm := context.WithoutCancel(ctx)
	if s.settings.RootKey != "" {
		err = keys.FoundOperator(firm)
	} else {
		s.operatorKey, _, err = keys.OperatorKey(firm)
	}
	if err != nil {
		return fmt.Errorf("make the operator's ledger and key: %w", err)
	}
	s.warnIfMoved(firm, keys)
	shown := promhttp.HandlerFor(m.registry,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)})
	h := s.settings.HTTP
	s.billing = billing.New(joined)
	s.api = httpapi.New(httpapi.Options{
		Store: s.store, Gate: s.gate(limiter, m), Registry: keys, Billing: s.billing, Plans: plans.New(joined),
		Windows: windows.New(s.store),
		Sinks: sinks.New(joined, sinks.Options{Vault: out.vault, Check: out.check,
			Overlap: s.settings.Sinks.SecretOverlap, Random: rand.Reader}),
		Fallback: s.sinks.Failing,
		Requests: requests,
		Verify: func(ctx context.Context, tenantID string,
			progress func(stage string, done, total uint64)) (verify.Report, error) {
			return verifyLive(ctx, kept, tenantID, progress)
		},
		Logger: s.log, Metrics: shown, Observe: m.answered, Version: thisBuild().Version,
		BodyBudget: h.BodyBudget, ReadHeaderTimeout: h.ReadHeaderTimeout, ReadTimeout: h.ReadTimeout,
		WriteTimeout: h.WriteTimeout, IdleTimeout: h.IdleTimeout,
		MaxConnections: h.maxConnections(openFiles(), s.log), MaxConnectionsPerAddress: h.MaxConnectionsPerAddress,
		Streams:   httpapi.StreamOptions{Max: h.MaxStreams, MaxPerTenant: h.MaxStreamsPerTenant},
		NoExpress: !h.Express, TLS: s.tls, DrainTimeout: s.settings.Drain.Timeout,
		DrainReceive: s.settings.Drain.Receive,
	})
	m.watchConnections(s.api)
	m.watchStreams(s.api)
	s.servers = []*http.Server{s.api.HTTPServer(s.settings.Listen)}
	s.requests = s.api.Listen(s.listeners[0])
	s.listeners[0] = s.requests
	if s.settings.MetricsListen != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", shown)
		if s.tls != nil {
			s.listeners[1] = tls.NewListener(s.listeners[1], s.tls)
		}
		s.servers = append(s.servers, &http.Server{
			Handler: mux, ReadHeaderTimeout: h.ReadHeaderTimeout, ReadTimeout: h.ReadTimeout,
			WriteTimeout: h.WriteTimeout, IdleTimeout: h.IdleTimeout,
		})
	}
	return nil
}

// warnIfMoved says at the start that writes will be refused. It ends no start: a key that was just made must still be
// shown.
func (s *Server) warnIfMoved(ctx context.Context, keys *registry.Service) {
	err := keys.KeptHere(ctx)
	switch {
	case problem.Is(err, problem.Moved):
		s.log.Warn("this store takes no more writes; it is served to be read", "reason", err)
	case err != nil:
		s.log.Warn("whether the ledgers were moved could not be read", "error", err)
	}
}

// replayed logs a long replay now and then: a start that says nothing looks like one that hangs.
func (s *Server) replayed(began time.Time) func(done, total int64) {
	last := began
	return func(done, total int64) {
		if time.Since(last) < lineEvery {
			return
		}
		last = time.Now()
		s.log.Info("replaying the journal", "bytes", done, "of", total)
	}
}

// exit ends the process on a failure that memory must not outlive. Nothing is closed: what is on disk is right as it
// is.
func (s *Server) exit(err error) {
	s.log.Error("the store failed: the process ends now; nothing acknowledged is lost, and the next start recovers it",
		"error", err)
	os.Exit(exitFailed)
}

func (s *Server) serve(server *http.Server, l net.Listener) {
	s.serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			select {
			case s.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err):
			default:
			}
		}
	})
}

// Addr is where the API listens.
func (s *Server) Addr() string { return s.listeners[0].Addr().String() }

// MetricsAddr is where the metrics have a listener of their own, or "".
func (s *Server) MetricsAddr() string {
	if len(s.listeners) < 2 {
		return ""
	}
	return s.listeners[1].Addr().String()
}

// URL is the API's address for a caller on this machine.
func (s *Server) URL() string {
	host, port, _ := net.SplitHostPort(s.Addr()) // a listener's own address always splits
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if s.tls != nil {
		return "https://" + net.JoinHostPort(host, port)
	}
	return "http://" + net.JoinHostPort(host, port)
}

// OperatorKey is the key that this start made, or "" when there was one or the settings name one.
func (s *Server) OperatorKey() string { return s.operatorKey }

// Wait returns nil when the context ends, or the error of a listener that failed.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Shutdown says no to probes, lets requests under way finish within the drain timeout, and closes the store, which
// leaves nothing to replay. A second call waits for the first.
func (s *Server) Shutdown() error {
	s.ended.Do(func() {
		s.api.Drain()
		s.log.Info("draining", "delay", s.settings.Drain.Delay, "timeout", s.settings.Drain.Timeout)
		if s.settings.Drain.Delay > 0 {
			<-time.After(s.settings.Drain.Delay)
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.settings.Drain.Timeout)
		defer cancel()
		for _, server := range s.servers {
			if err := server.Shutdown(ctx); err != nil {
				s.log.Warn("requests were cut off: they took longer than drain.timeout", "error", err)
				_ = server.Close() // what it could not close, the end of the process does
			}
		}
		s.requests.Wait()
		s.serving.Wait()
		s.stopJobs()
		s.endErr = s.release()
		s.log.Info("stopped")
	})
	return s.endErr
}

// release closes what was opened, whoever got how far.
func (s *Server) release() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.requests != nil {
		s.requests.Wait()
	}
	if s.limits != nil {
		errs = append(errs, s.limits.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}
