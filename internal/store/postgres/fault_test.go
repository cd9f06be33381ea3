package postgres

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given batches under way, when the server crashes and comes back several times, then nothing that was answered is lost and nothing
// is counted twice, and the store goes on by itself.
func TestServerCrashesBetweenBatches(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t)
	url, err := server.Create("")
	if err != nil {
		t.Fatal(err)
	}
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: url, Now: clock.Now, MaxConns: few})
	defer mustClose(t, s)
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	const facts, submitters, crashes = 3000, 3, 3
	y := newTally()
	var left sync.WaitGroup
	var answered atomic.Int64
	crash := make(chan struct{}, submitters*facts)
	for i := range submitters {
		left.Go(func() {
			for _, events := range batches(facts, 50, uint64(i)) {
				y.deliver(t, s, events)
				if answered.Add(1)%40 == 0 {
					crash <- struct{}{}
				}
			}
		})
	}
	for range crashes {
		<-crash
		if err := server.End(); err != nil {
			t.Fatal(err)
		}
		if err := server.Begin(); err != nil {
			t.Fatal(err)
		}
	}
	left.Wait()
	y.check(t, s, facts)
}

// Given a server that is away, when anything is asked, then the answer says so and when to come back, and when the server is back
// all is well again.
func TestServerAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t)
	url, err := server.Create("")
	if err != nil {
		t.Fatal(err)
	}
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: url, Now: clock.Now, MaxConns: few})
	defer mustClose(t, s)
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	if err := server.End(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	ask := map[string]func() error{
		"record": func() error {
			_, err := s.Record(ctx, store.Batch{Tenant: "acme", Events: []usage.Event{numbered(1)}})
			return err
		},
		"update":  func() error { return s.Update(ctx, "acme", func(store.Tx) error { return nil }) },
		"view":    func() error { return s.View(ctx, "acme", func(store.View) error { return nil }) },
		"access":  func() error { _, _, err := s.Access(ctx, "acme", "k"); return err },
		"tenants": func() error { _, err := s.Tenants(ctx, "", 1); return err },
		"ready":   func() error { return s.Ready(ctx) },
	}
	for what, fn := range ask {
		err := fn()
		var p *problem.Error
		if !problem.Is(err, problem.Unavailable) || !errors.As(err, &p) || p.RetryAfter == 0 {
			t.Errorf("%s while the server is away: %v", what, err)
		}
	}
	if err := server.Begin(); err != nil {
		t.Fatal(err)
	}
	// Each dead connection is found out once.
	for range few {
		if s.Ready(ctx) == nil {
			break
		}
	}
	for what, fn := range ask {
		if err := fn(); err != nil && !problem.Is(err, problem.NotFound) {
			t.Errorf("%s after the server came back: %v", what, err)
		}
	}
	storetest.CheckLedger(t, s, "acme")
}

// Given a network that cuts connections around the commit, before the server has it or after it has done it and before the answer,
// when facts are recorded, then every answer is the truth: each fact is accepted once, and none is told to come again.
func TestConnectionsCutAroundTheCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := migrated(t)
	p := newCutter(t, filepath.Join(server.Socket(), ".s.PGSQL.5432"))
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: strings.Replace(url, server.Socket(), p.dir, 1), Now: clock.Now, MaxConns: few, SkipMigrations: true})
	defer mustClose(t, s)
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	p.armed.Store(true)
	const facts = 2000
	y := newTally()
	for _, events := range batches(facts, 50, 1) {
		y.deliver(t, s, events)
	}
	p.armed.Store(false)
	if p.before.Load() == 0 || p.after.Load() == 0 {
		t.Errorf("%d connections were cut before the commit and %d after it", p.before.Load(), p.after.Load())
	}
	if y.failures != 0 {
		t.Errorf("%d batches were told to come again", y.failures)
	}
	y.check(t, s, facts)
}

// cutter stands between a store and its server and cuts every few connections around a commit.
type cutter struct {
	dir           string
	armed         atomic.Bool
	commits       atomic.Int64
	before, after atomic.Int64
}

// cutEvery is how many commits pass between two cuts: the next attempt and the search for what became of it get through.
const cutEvery = 4

func newCutter(t *testing.T, server string) *cutter {
	dir, err := os.MkdirTemp("/tmp", "pgcut")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{dir: dir}
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			wg.Go(func() { c.carry(client, up) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	return c
}

// carry copies both ways until either end is closed or a commit is cut.
func (c *cutter) carry(client, server net.Conn) {
	var cut atomic.Bool // the answer to the commit must not come through
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.down(client, server, &cut)
	}()
	c.up(client, server, &cut)
	_ = server.Close()
	<-done
	_ = client.Close()
}

// The statement named commit is bound with its name between two NULs; its answer is a tag.
var (
	commitBound = []byte("\x00commit\x00")
	commitTag   = []byte("COMMIT\x00")
)

func (c *cutter) up(client, server net.Conn, cut *atomic.Bool) {
	buf, seen := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		seen = append(seen[max(0, len(seen)-len(commitBound)):], buf[:n]...)
		if c.armed.Load() && bytes.Contains(seen, commitBound) {
			switch k := c.commits.Add(1); {
			case k%(2*cutEvery) == 0:
				c.before.Add(1)
				return
			case k%cutEvery == 0:
				cut.Store(true)
			}
			seen = nil
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *cutter) down(client, server net.Conn, cut *atomic.Bool) {
	defer func() { _ = client.Close() }()
	buf, seen := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if cut.Load() {
			seen = append(seen, buf[:n]...)
			if bytes.Contains(seen, commitTag) {
				c.after.Add(1)
				return
			}
			continue
		}
		if _, err := io.Copy(client, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}
