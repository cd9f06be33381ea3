package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// addition is all that one transaction adds to one tenant's ledger.
type addition struct {
	tenantID string
	base     ledger.Head // that it follows
	at       calendar.Micros
	rows     []ledger.Row
	links    []uint64     // of the rows' outcomes, one after the other: the row that the same counter folded before
	set      *residentSet // after it
	moved    bool         // the set did
	cells    []*cell      // that changed
	joined   map[memberKey]bool
	tallies  []*tallyCell // that changed

	entities      map[entityName]keptEntity // that changed
	newlyUsed     []uint32                  // meters
	newlyCritical []criticalKind
}

// addition is what the history adds to the head.
func (h *history) addition(head *head) *addition {
	return &addition{tenantID: h.tenantID, base: head.Head, at: h.now, rows: h.rows, links: h.links,
		set: h.set, moved: h.set != h.began, cells: h.dirty, joined: h.joined, tallies: h.tallies,
		entities: h.entities, newlyUsed: h.newlyUsed, newlyCritical: h.newlyCritical}
}

// writer turns additions into parameters. It keeps its memory from one to the next.
type writer struct {
	hasher        ledger.Hasher
	plain, full   eventArrays
	entries       entryArrays
	changes       changeArrays
	tiles         []tree.Tile
	newCounters   counterArrays
	plainCounters counterArrays
	counters      counterArrays
	memberAt      placeArrays
	member        array
	generation    array
	onTime        array
}

var writers sync.Pool // of *writer

// transfer is an addition on its way to the server. Rows are sent while those that follow are still being judged, so
// that the server works at the same time; nothing counts before the commit.
type transfer struct {
	s      *Store
	ctx    context.Context
	c      *session
	w      *writer
	r      *roundTrip // under way, or nil
	sent   int        // rows
	linked int        // links of them
	timed  bool       // its parts are measured
}

// chunk is how many rows are sent at a time.
const chunk = 1000

func (s *Store) transfer(ctx context.Context, c *session) *transfer {
	w, ok := writers.Get().(*writer)
	if !ok {
		w = &writer{}
	}
	return &transfer{s: s, ctx: ctx, c: c, w: w, timed: true}
}

func (f *transfer) roundTrip() *roundTrip {
	if f.r == nil {
		f.r = f.c.roundTrip(f.ctx)
	}
	return f.r
}

// offer sends rows when enough of them wait.
func (f *transfer) offer(past *history) {
	if len(past.rows)-f.sent >= chunk {
		f.send(past.tenantID, past.rows, past.links, past.now)
	}
}

// send sends the rows that were not sent yet.
func (f *transfer) send(tenantID string, rows []ledger.Row, links []uint64, at calendar.Micros) {
	f.w.sendEvents(f.roundTrip(), tenantID, rows[f.sent:], links[f.linked:], at)
	f.sent, f.linked = len(rows), len(links)
	f.r.flush()
}

// drain ends the round trip under way, so that the connection is free to read.
func (f *transfer) drain() error {
	if f.r == nil {
		return nil
	}
	err := f.r.do()
	f.r = nil
	return err
}

// end must be called when the transfer is no longer needed, committed or not.
func (f *transfer) end() {
	_ = f.drain() // after an error the transaction is lost anyway
	writers.Put(f.w)
}

// commit writes the rest of the addition, commits the session's transaction and returns the new head and the version of
// the resident set. After an error the transaction has not happened, except that an Unavailable says that nobody
// knows.
func (f *transfer) commit(a *addition) (ledger.Head, uint64, error) {
	began, written := time.Now(), time.Time{}
	id, first := []byte(a.tenantID), int8Param(int64(a.base.Seq+1))
	f.send(a.tenantID, a.rows, a.links, a.at)
	r := f.r
	head := ledger.Head{Seq: a.base.Seq + uint64(len(a.rows)), Clock: a.at}
	// The server works on the rows meanwhile. The first rows of a ledger bring the keys of its tree.
	head.Tree, f.w.tiles = f.w.hasher.Grow(a.base.Tree, a.set.TreeKeys, a.rows, f.w.tiles[:0])
	version := a.set.version
	if a.moved {
		version = newVersion(head.Seq)
	}
	var token [16]byte
	rand.Read(token[:]) // never fails
	f.w.sendRest(r, a)
	sendTiles(r, a.tenantID, f.w.tiles)
	r.send(addSection, nil, id, first, int4Param(int32(len(a.rows))), timeParam(a.at), token[:],
		tree.AppendBinary(nil, head.Tree), int8Param(int64(head.Seq)), int8Param(int64(version)))
	if f.timed {
		r.then(func() { written = time.Now() })
	}
	r.send(commit, nil)
	err := f.drain()
	defer func() { // also when nobody knows whether it happened
		f.s.bell.Ring()
		f.s.roller.wake(a.tenantID)
	}()
	if err == nil {
		m := f.s.metrics
		m.transactions.Inc()
		m.rows.Add(float64(len(a.rows)))
		if f.timed {
			m.insert.Observe(written.Sub(began).Seconds())
			m.commit.Observe(time.Since(written).Seconds())
		}
		return head, version, nil
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && !f.c.pg.IsClosed() && f.c.pg.TxStatus() == 'E' {
		return head, version, err // a statement failed and the server has said so: nothing was committed
	}
	happened, unresolved := f.s.resolve(f.ctx, a.tenantID, first, token)
	switch {
	case unresolved != nil:
		return head, version, problem.Wrap(problem.Unavailable, errors.Join(err, unresolved),
			"the connection broke during the commit, and whether it happened cannot be found out now; "+
				"sending the same again is safe").Retry(retryAfter)
	case happened:
		f.s.metrics.transactions.Inc()
		f.s.metrics.rows.Add(float64(len(a.rows)))
		err = nil
	}
	f.s.metrics.resolved.Inc()
	return head, version, err
}

// resolve finds out whether a commit happened whose answer was lost. The lock on the head waits until the lost
// transaction has ended either way.
func (s *Store) resolve(ctx context.Context, tenantID string, first []byte, token [16]byte) (happened bool, err error) {
	// The time of the commit itself may be used up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.LockTimeout+s.options.ConnectTimeout)
	defer cancel()
	err = s.again(ctx, func() error {
		c, err := s.lend(ctx)
		if err != nil {
			return err
		}
		defer c.giveBack(ctx)
		r := c.roundTrip(ctx)
		r.beginWriting(tenantID)
		r.send(lockHead, nil, []byte(tenantID))
		r.send(sectionToken, func(in *reader) error {
			happened = string(in.next(len(token))) == string(token[:])
			return nil
		}, []byte(tenantID), first)
		return r.do()
	})
	return happened, err
}

// sendEvents adds the usage rows among the rows.
func (w *writer) sendEvents(r *roundTrip, tenantID string, rows []ledger.Row, links []uint64, at calendar.Micros) {
	w.plain.reset()
	w.full.reset()
	for i := range rows {
		row := &rows[i]
		if row.Kind() != ledger.EventRow {
			continue
		}
		if isPlain(row.Event) {
			w.plain.add(row)
			w.plain.prev.link(links[0])
		} else {
			w.full.add(row)
			w.full.addRest(row.Event, links)
		}
		links = links[len(row.Event.Outcomes):]
	}
	if w.plain.key.n > 0 {
		r.send(addPlainEvents, nil, w.plain.plain(tenantID, at)...)
	}
	if w.full.key.n > 0 {
		r.send(addEvents, nil, w.full.full(tenantID, at)...)
	}
}

// sendRest adds the other rows, and what all rows leave behind.
func (w *writer) sendRest(r *roundTrip, a *addition) {
	w.entries.reset()
	w.changes.reset()
	for i := range a.rows {
		switch row := &a.rows[i]; row.Kind() {
		case ledger.EventRow:
		case ledger.EntryRow:
			w.entries.add(row)
		case ledger.ChangeRow:
			w.changes.add(row)
		}
	}
	if w.entries.seq.n > 0 {
		r.send(addEntries, nil, w.entries.params(a.tenantID, a.at)...)
	}
	if w.changes.seq.n > 0 {
		r.send(addChanges, nil, w.changes.params(a.tenantID, a.at)...)
	}
	sendEntities(r, a.tenantID, a.entities, a.at)
	sendMoved(r, a)
	w.sendCounters(r, a)
	sendTallies(r, a)
	w.sendMembers(r, a)
}

// fewCounters are cheaper in one statement, new ones and others, than in two.
const fewCounters = 16

func (w *writer) sendCounters(r *roundTrip, a *addition) {
	w.newCounters.reset()
	w.plainCounters.reset()
	w.counters.reset()
	for _, c := range a.cells {
		switch {
		case !isPlainCounter(&c.Counter):
			w.counters.add(c)
			w.counters.addRest(&c.Counter)
		case c.stored, len(a.cells) <= fewCounters:
			w.plainCounters.add(c)
		default:
			w.newCounters.add(c)
		}
	}
	if w.newCounters.month.n > 0 {
		r.send(addPlainCounters, nil, w.newCounters.plain(a.tenantID)...)
	}
	if w.plainCounters.month.n > 0 {
		r.send(putPlainCounters, nil, w.plainCounters.plain(a.tenantID)...)
	}
	if w.counters.month.n > 0 {
		r.send(putCounters, nil, w.counters.full(a.tenantID)...)
	}
}

func (w *writer) sendMembers(r *roundTrip, a *addition) {
	if len(a.joined) == 0 {
		return
	}
	w.memberAt.reset()
	w.member.reset(oidText)
	w.generation.reset(oidInt4)
	w.onTime.reset(oidBool)
	for k, onTime := range a.joined {
		w.memberAt.month.month(k.id.Month)
		w.memberAt.meter.text(a.set.Catalog.Number(k.id.Meter).Slug)
		w.memberAt.customer.text(k.id.Customer)
		w.member.text(k.member)
		w.generation.int4(int32(k.generation))
		w.onTime.bool(onTime)
	}
	params := append(w.memberAt.params(a.tenantID), w.member.param(), w.generation.param(), w.onTime.param())
	r.send(putMembers, nil, params...)
}

// head is a tenant's head as a transaction read it.
type head struct {
	ledger.Head
	version uint64
	now     calendar.Micros // the head's clock, or the database's if that is later
	exists  bool
}

func (s *Store) headFrom(h *head) func(*reader) error {
	return func(in *reader) error {
		h.exists = true
		h.Seq = uint64(in.int8())
		encoded := in.next(-1)
		h.Clock, h.version = in.time(), uint64(in.int8())
		h.now = max(h.Clock, s.now(in.time()))
		if in.err != nil {
			return fmt.Errorf("read the head: %w", in.err)
		}
		var err error
		if h.Tree, err = readTree(encoded, h.Seq); err != nil {
			return fmt.Errorf("read the head: %w: %w", err, errDefect)
		}
		if h.Seq >= grownAt && !s.grown.Load() {
			s.grown.Store(true)
		}
		return nil
	}
}
