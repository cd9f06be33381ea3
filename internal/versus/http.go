package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/eventjson"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/load/target"
)

// posting is what the HTTP contenders share: the generator's connections to a loopback server in this process.
type posting struct {
	w       *load.Workload
	to      load.Target
	senders []*load.Sender
}

func (p *posting) connect(ctx context.Context) (*load.Sender, error) {
	s, err := load.NewSender(ctx, p.w, p.to)
	if err == nil {
		p.senders = append(p.senders, s)
	}
	return s, err
}

func (p *posting) disconnect() {
	for _, s := range p.senders {
		_ = s.Close()
	}
}

// wholeHTTP is the whole server, as users meet it.
type wholeHTTP struct {
	posting
	dir    string // of the store, if it has one
	server *target.Server
}

func openEngineHTTP(ctx context.Context, b *bench, _ Cell) (subject, error) {
	return startEngineHTTP(ctx, b)
}

func startEngineHTTP(ctx context.Context, b *bench) (*wholeHTTP, error) {
	dir := b.folder()
	server, err := target.Start(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return fillHTTP(ctx, b, &wholeHTTP{dir: dir, server: server})
}

func startPgStoreHTTP(ctx context.Context, b *bench) (*wholeHTTP, error) {
	s, err := emptyPgStore(ctx, b)
	if err != nil {
		return nil, err
	}
	server, err := target.Serve(ctx, s, http.NotFoundHandler())
	if err != nil {
		return nil, err
	}
	return fillHTTP(ctx, b, &wholeHTTP{server: server})
}

// fillHTTP makes the tenants of the workload.
func fillHTTP(ctx context.Context, b *bench, s *wholeHTTP) (_ *wholeHTTP, err error) {
	s.w = b.w
	s.to.Keys, err = populate(ctx, s.server.Store(), b.w)
	if err == nil {
		s.to.URL, err = url.Parse(s.server.URL)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *wholeHTTP) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	sender, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return sender.Send, nil
}

func (s *wholeHTTP) check(ctx context.Context, streams []*load.Stream, _ sample) error {
	return checkCounters(ctx, s.server.Store(), s.w, streams, 0)
}

func (s *wholeHTTP) close() error {
	s.disconnect()
	return errors.Join(s.server.Close(), os.RemoveAll(s.dir))
}

// limit is a server without a store: no server on the same library can be faster than one that does less.
type limit struct {
	posting
	http     *http.Server
	done     chan error
	requests atomic.Int64
	events   atomic.Int64 // those that were decoded
	decodes  bool
}

func openBare(ctx context.Context, b *bench, _ Cell) (subject, error) {
	l := &limit{posting: posting{w: b.w}}
	return l, l.serve(ctx, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		l.answer(w, 0, err)
	})
}

func openDecode(ctx context.Context, b *bench, _ Cell) (subject, error) {
	l := &limit{posting: posting{w: b.w}, decodes: true}
	return l, l.serve(ctx, l.decode)
}

// scratch is what decoding needs; nothing of the events is kept, so the body is reused too.
type scratch struct {
	body   []byte
	events []usage.Event
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (l *limit) decode(w http.ResponseWriter, r *http.Request) {
	s, _ := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if int64(cap(s.body)) < r.ContentLength {
		s.body = make([]byte, r.ContentLength)
	}
	body := s.body[:r.ContentLength]
	if _, err := io.ReadFull(r.Body, body); err != nil {
		l.answer(w, 0, err)
		return
	}
	batch, err := eventjson.Decode(body, s.events)
	if err == nil {
		s.events = batch.Events[:0]
	}
	l.answer(w, len(batch.Events), err)
}

func (l *limit) answer(w http.ResponseWriter, events int, err error) {
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	l.requests.Add(1)
	l.events.Add(int64(events))
	_, _ = io.WriteString(w, `{"status":"ok"}`) // a caller that is gone reads nothing
}

const headerTimeout = 10 * time.Second

func (l *limit) serve(ctx context.Context, handle http.HandlerFunc) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.to.URL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	l.http, l.done = &http.Server{Handler: handle, ReadHeaderTimeout: headerTimeout}, make(chan error, 1)
	go func() { l.done <- l.http.Serve(listener) }()
	return nil
}

func (l *limit) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	sender, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	return func(b *load.Batch) error {
		status, _, err := sender.Post(b)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("answer %d", status)
		}
		return err
	}, nil
}

func (l *limit) check(_ context.Context, _ []*load.Stream, sent sample) error {
	if n := l.requests.Load(); n != sent.requests {
		return fmt.Errorf("%d requests were answered, %d were sent", n, sent.requests)
	}
	if n := l.events.Load(); l.decodes && n != sent.events {
		return fmt.Errorf("%d events were decoded, %d were sent", n, sent.events)
	}
	return nil
}

func (l *limit) close() error {
	l.disconnect()
	err := l.http.Close()
	if served := <-l.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
