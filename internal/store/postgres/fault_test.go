package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given batches under way, when the server crashes and comes back several times, then nothing that was answered is lost
// and nothing is counted twice, and the store goes on by itself.
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

// Given a server that is away, when anything is asked, then the answer says so and when to come back, and when the
// server is back all is well again.
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
		"access":  func() error { _, err := s.Access(ctx, "acme", "k"); return err },
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

// Given a network that cuts connections around the commit, before the server has it or after it has done it and before
// the answer, when facts are recorded, then every answer is the truth: each fact is accepted once, and none is asked to
// come again.
func TestConnectionsCutAroundTheCommit(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	url := migrated(t)
	p := newCutter(t, filepath.Join(server.Socket(), ".s.PGSQL.5432"))
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: strings.Replace(url, server.Socket(), p.dir, 1), Now: clock.Now, MaxConns: few,
		SkipMigrations: true})
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
		t.Errorf("%d batches were refused for now", y.failures)
	}
	y.check(t, s, facts)
}

// cutter stands between a store and its server and cuts every few connections around a commit.
type cutter struct {
	dir string
	// deaf drops requests to cancel. A driver that loses a connection asks for that, beside what a test holds, and the
	// server would obey at any moment from then on.
	deaf          bool
	held          atomic.Pointer[holder] // called at the next commit, once
	armed         atomic.Bool
	commits       atomic.Int64
	before, after atomic.Int64
	trips         atomic.Int64 // round trips inside transactions, without the one that ends each
}

// cutEvery is how many commits pass between two cuts: the next attempt and the search for what became of it get
// through.
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
	var held sync.Mutex // while a commit is: its holder says when the sender learns that the server is gone
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.down(client, server, &cut)
		held.Lock()
		defer held.Unlock()
		_ = client.Close()
	}()
	c.up(client, server, &cut, &held)
	_ = server.Close()
	<-done
	_ = client.Close()
}

// The statement named commit is bound with its name between two NULs; its answer is a tag.
var (
	commitBound = []byte("\x00commit\x00")
	commitTag   = []byte("COMMIT\x00")
	// readyAgain ends the answer to a round trip after which the transaction goes on.
	readyAgain = []byte("Z\x00\x00\x00\x05T")
	// cancelRequest is how a connection begins that asks to cancel what another one runs.
	cancelRequest = []byte("\x00\x00\x00\x10\x04\xd2\x16\x2e")
)

func (c *cutter) up(client, server net.Conn, cut *atomic.Bool, held *sync.Mutex) {
	buf, seen := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := client.Read(buf)
		if err != nil || c.deaf && bytes.HasPrefix(buf[:n], cancelRequest) {
			return
		}
		seen = append(seen[max(0, len(seen)-len(commitBound)):], buf[:n]...)
		if bytes.Contains(seen, commitBound) {
			if hold := c.held.Swap(nil); hold != nil {
				held.Lock()
				cut := (*hold)(client, server, buf[:n])
				held.Unlock()
				if cut {
					return
				}
				seen = nil
				continue
			}
		}
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
	buf, seen, tail := make([]byte, 64<<10), []byte(nil), []byte(nil)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		tail = append(tail[max(0, len(tail)-len(readyAgain)+1):], buf[:n]...)
		c.trips.Add(int64(bytes.Count(tail, readyAgain)))
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

// isNewer reports whether an error says that a newer build wrote a row, and nothing of a database that is away.
func isNewer(err error, row string) bool {
	var p *problem.Error
	return errors.As(err, &p) && p.Code == problem.Unavailable && strings.Contains(p.Detail,
		"newer build") && strings.Contains(p.Detail, row) &&
		strings.Contains(p.Detail, "upgrade this node") && !strings.Contains(err.Error(), "reached")
}

// Given any failure, when it is answered, then only a connection that failed is called one, and each other cause is
// named.
func TestFailuresAreCalledWhatTheyAre(t *testing.T) {
	t.Parallel()
	s, _ := measured(t)
	for _, c := range []struct {
		err    error
		code   problem.Code
		detail string
		again  bool
	}{
		{driverFailed(io.ErrUnexpectedEOF), problem.Unavailable, "cannot be reached", true},
		{fmt.Errorf("get a connection: %w", driverFailed(context.DeadlineExceeded)), problem.Unavailable,
			"cannot be reached", true},
		{driverFailed(&pgconn.PgError{Code: "57P01"}), problem.Unavailable, "starting or shutting down", true},
		{&pgconn.PgError{Code: "53300"}, problem.Unavailable, "no connection left", true},
		{&pgconn.PgError{Code: "53100"}, problem.Unavailable, "disk of the database is full", true},
		{&pgconn.PgError{Code: "25006"}, problem.Unavailable, "read-only", true},
		{&pgconn.PgError{Code: "55P03"}, problem.Unavailable, "holds the tenant's head", true},
		{&pgconn.PgError{Code: "57014"}, problem.Unavailable, "too slow", true},
		{&pgconn.PgError{Code: "40001"}, problem.Unavailable, "in favor of others", true},
		{&pgconn.PgError{Code: "28P01"}, problem.Unavailable, "refuses the login", false},
		{&pgconn.PgError{Code: "3D000"}, problem.Unavailable, "does not exist", false},
		{&pgconn.PgError{Code: "42P01"}, problem.Unavailable, "tallystick migrate", false},
		{&pgconn.PgError{Code: "42601"}, problem.Internal, "refused a statement", false},
		{fmt.Errorf("row 7: %w", errDefect), problem.Internal, "cannot be read", false},
		{errors.New("column 3 of a result has 2 bytes"), problem.Internal, "cannot be read", false},
		{problem.New(problem.Conflict, "as it is"), problem.Conflict, "as it is", false},
	} {
		var p *problem.Error
		if err := s.portError(context.Background(), c.err); !errors.As(err,
			&p) || p.Code != c.code || !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%v is answered %v, want %s and %q", c.err, err, c.code, c.detail)
		}
		if again := kindOf(c.err) != lasting; again != c.again {
			t.Errorf("%v is tried again: %v", c.err, again)
		}
	}
}
