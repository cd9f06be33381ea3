// Package postgres is the store on PostgreSQL: for teams that want SQL on their ledger, a managed database, or several
// stateless nodes behind one. It owns the schema and every statement that runs on it.
//
// The rules of core decide; SQL only fetches and stores. One transaction is one tenant, and whoever writes locks that
// tenant's head first, so that order, watermarks, closes and counters cannot race between nodes. What a node remembers
// of a tenant is never trusted by itself: the head under the lock says whether it still holds.
//
// Where to look: lane.go has the waiting batches of a tenant ride along in one transaction, record.go is that
// transaction, history.go shows the rules what it fetched, write.go is all that is ever written, tree.go is what the
// tables have of a ledger's tree and prune.go what they keep of rows that leave, entities.go and lookup.go keep and
// find entities of every kind, resident.go is what a node holds decoded, update.go, import.go and view.go are the rest
// of the port, roller.go adds usage up by the hour and hours.go reads what it has, guard.go is what must hold for the
// walls between tenants to stand, and fault.go says which failures are tried again.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/following"
)

// Options of a store. Zero values stand for the defaults.
type Options struct {
	// URL names the database, as postgres://user:password@host:port/database?sslmode=verify-full or a keyword string.
	URL string
	// Now replaces the database's clock, for tests.
	Now func() time.Time
	// MaxConns bounds the connections of this node. Default: 8, or four for each core if that is more.
	MaxConns int
	// StatementTimeout bounds one statement. Default: 30 s.
	StatementTimeout time.Duration
	// LockTimeout bounds the wait for a tenant's head, which another node holds for one commit. Default: 10 s.
	LockTimeout time.Duration
	// ConnectTimeout bounds the making of a connection. Default: 5 s.
	ConnectTimeout time.Duration
	// Metrics takes the store's figures. Default: none.
	Metrics prometheus.Registerer
	// PruneRows is how many row numbers one transaction of pruning covers, in whole tiles of the tree: at least one.
	// Default: 5120.
	PruneRows uint64
	// RollupRows is how many rows one transaction adds up by the hour. Default: 50,000.
	RollupRows uint64
	// NoRollups leaves it to other nodes to add up usage by the hour. Readers add up what no node has.
	NoRollups bool
	// Kinds are the kinds of entities that this build knows. Default: kinds.All().
	Kinds *entity.Kinds
	// SkipMigrations leaves the schema as it is; `tallystick migrate` then brings it up to date.
	SkipMigrations bool
}

func (o Options) withDefaults() Options {
	if o.MaxConns == 0 {
		o.MaxConns = max(8, 4*runtime.GOMAXPROCS(0))
	}
	if o.Kinds == nil {
		o.Kinds = kinds.All()
	}
	if o.PruneRows == 0 {
		o.PruneRows = pruneRows
	}
	if o.RollupRows == 0 {
		o.RollupRows = rollupRows
	}
	for _, d := range [...]struct {
		value   *time.Duration
		instead time.Duration
	}{
		{&o.StatementTimeout, 30 * time.Second}, {&o.LockTimeout, 10 * time.Second},
		{&o.ConnectTimeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.instead
		}
	}
	return o
}

// Store is the store on one database. Any number of them, in any number of processes, may share it.
type Store struct {
	options Options
	pool    *pgxpool.Pool
	sets    residentSets
	metrics *metrics
	works   sync.WaitGroup // goroutines of lanes
	bell    following.Bell
	roller  *roller

	// grown is set once a ledger has some rows. A plan that was made for an empty table may use any of its indexes,
	// because none looks better than another, and would be kept when the table has grown: until then, statements that
	// could go wrong are planned anew each time. Rows are never taken away, so that the plans made after it stay good.
	grown atomic.Bool

	mu     sync.Mutex // guards all below
	lanes  map[string]*lane
	facts  int // that wait, over all lanes
	bytes  int // of them
	closed bool
}

var _ store.Store = (*Store)(nil)

// Open connects, brings the schema up to date and makes sure that the walls between tenants hold.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if !o.SkipMigrations {
		if err := Migrate(ctx, o.URL); err != nil {
			return nil, err
		}
	}
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("parse the database's URL: %w", err)
	}
	config.MaxConns = int32(o.MaxConns)
	config.ConnConfig.ConnectTimeout = o.ConnectTimeout
	for name, value := range o.settings() {
		config.ConnConfig.RuntimeParams[name] = value
	}
	s := &Store{options: o, lanes: map[string]*lane{}}
	// When one connection is silent the others are too: all are made anew, instead of being found out one by one.
	patience := o.StatementTimeout + o.ConnectTimeout
	config.ConnConfig.DialFunc = listening(config.ConnConfig.DialFunc, patience, func() { s.pool.Reset() })
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s.pool = pool
	s.sets.entries = map[string]*residentEntry{}
	s.metrics = newMetrics(o.Metrics, s)
	err = s.guard(ctx)
	if err == nil {
		err = s.metrics.register()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	if !o.NoRollups {
		s.startRoller()
	}
	return s, nil
}

// grownAt is how many rows make the planner see which index is the best one.
const grownAt = 10_000

// settings are those of every connection. Every statement here reads by an index and is planned once, not for one
// array's length.
func (o Options) settings() map[string]string {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		"search_path": Schema, "application_name": "tallystick",
		"statement_timeout": ms(o.StatementTimeout), "lock_timeout": ms(o.LockTimeout),
		"idle_in_transaction_session_timeout": writerIdle, "standard_conforming_strings": "on",
		"plan_cache_mode": "force_generic_plan", "jit": "off",
		"enable_seqscan": "off", "enable_bitmapscan": "off", "timezone": "UTC",
	}
}

// now is the time that a rule sees, given what the database's clock showed.
func (s *Store) now(database calendar.Micros) calendar.Micros {
	if s.options.Now != nil {
		return calendar.FromTime(s.options.Now())
	}
	return database
}

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	err := s.reading(ctx, roleServe, "", func(ctx context.Context, c *session) error {
		return c.ask(ctx, writable, func(in *reader) error {
			if !in.bool() {
				return problem.New(problem.Unavailable,
					"the database is read-only: it is a replica, or failing over").Retry(retryAfter)
			}
			return nil
		})
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.Wrap(problem.Unavailable, err, "the database does not answer").Retry(retryAfter)
	}
	return err
}

// open reports why nothing can be done.
func (s *Store) open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return problem.New(problem.Unavailable, "the store is closed")
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.works.Wait()
	s.roller.stop()
	s.metrics.unregister()
	s.pool.Close()
	return nil
}

// reading runs fn in a transaction that only reads and sees one moment. Losing the connection before fn has begun is
// tried again.
func (s *Store) reading(
	ctx context.Context, role, tenantID string, fn func(ctx context.Context, c *session) error,
) error {
	var c *session
	err := s.again(ctx, func() (err error) {
		if c, err = s.lend(ctx); err != nil {
			return err
		}
		r := c.roundTrip(ctx)
		r.beginReading(role, tenantID)
		if err = r.do(); err != nil {
			c.giveBack(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer c.giveBack(context.WithoutCancel(ctx))
	return s.portError(ctx, fn(ctx, c))
}
