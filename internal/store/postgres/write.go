package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// addition is all that one transaction adds to one tenant's ledger.
type addition struct {
	tenantID string
	base     ledger.Head // that it follows
	at       calendar.Micros
	rows     []ledger.Row
	config   *config // after it
	changed  bool    // the configuration did
	cells    []*cell // that changed
	joined   map[memberKey]bool
	newlyUse []uint32
}

// writer turns additions into parameters. It keeps its memory from one to the next.
type writer struct {
	hasher        ledger.Hasher
	plain, full   eventArrays
	changes       changeArrays
	plainCounters counterArrays
	counters      counterArrays
	memberAt      placeArrays
	member        array
	generation    array
	onTime        array
}

var writers sync.Pool // of *writer

// flow is the way of an addition to the server. Rows are sent while those that follow are still being judged, so that the server
// works at the same time; nothing counts before the commit.
type flow struct {
	s    *Store
	ctx  context.Context
	c    *session
	w    *writer
	r    *round // under way, or nil
	sent int    // rows
}

// chunk is how many rows are sent at a time.
const chunk = 1000

func (s *Store) flow(ctx context.Context, c *session) *flow {
	w, ok := writers.Get().(*writer)
	if !ok {
		w = &writer{}
	}
	return &flow{s: s, ctx: ctx, c: c, w: w}
}

func (f *flow) round() *round {
	if f.r == nil {
		f.r = f.c.round(f.ctx)
	}
	return f.r
}

// offer sends rows when enough of them wait.
func (f *flow) offer(tenantID string, rows []ledger.Row, at calendar.Micros) {
	if len(rows)-f.sent < chunk {
		return
	}
	f.w.sendEvents(f.round(), tenantID, rows[f.sent:], at)
	f.sent = len(rows)
	f.r.flush()
}

// drain ends the round under way, so that the connection is free to read.
func (f *flow) drain() error {
	if f.r == nil {
		return nil
	}
	err := f.r.do()
	f.r = nil
	return err
}

// end must be called when the flow is no longer needed, committed or not.
func (f *flow) end() {
	_ = f.drain() // after an error the transaction is lost anyway
	writers.Put(f.w)
}

// commit writes the rest of the addition, commits the session's transaction and returns the new head. After an error the
// transaction has not happened, except that an Unavailable says that nobody knows.
func (f *flow) commit(a *addition) (ledger.Head, error) {
	id, first := []byte(a.tenantID), int8Param(int64(a.base.Seq+1))
	r := f.round()
	f.w.sendEvents(r, a.tenantID, a.rows[f.sent:], a.at)
	r.flush()
	head := ledger.Head{Seq: a.base.Seq + uint64(len(a.rows)), Clock: a.at, Chain: f.w.hasher.Next(a.base.Chain, a.rows)}
	version := a.config.version
	if a.changed || len(a.newlyUse) > 0 {
		version = head.Seq
	}
	var token [16]byte
	rand.Read(token[:]) // never fails
	if err := f.w.sendRest(r, a); err != nil {
		return head, err
	}
	r.send(addSection, nil, id, first, int4Param(int32(len(a.rows))), timeParam(a.at), head.Chain[:], token[:])
	r.send(moveHead, nil, id, int8Param(int64(head.Seq)), head.Chain[:], timeParam(head.Clock), int8Param(int64(version)))
	r.send(commit, nil)
	err := f.drain()
	if err == nil {
		return head, nil
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && !f.c.pg.IsClosed() && f.c.pg.TxStatus() == 'E' {
		return head, err // a statement failed and the server has told us so: nothing was committed
	}
	happened, unresolved := f.s.resolve(f.ctx, a.tenantID, first, token)
	switch {
	case unresolved != nil:
		return head, problem.Wrap(problem.Unavailable, errors.Join(err, unresolved),
			"the connection broke during the commit, and whether it happened cannot be found out now; sending the same again is safe").Retry(retryAfter)
	case happened:
		return head, nil
	}
	return head, err
}

// resolve finds out whether a commit happened whose answer was lost. The lock on the head waits until the lost transaction has
// ended either way.
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
		r := c.round(ctx)
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
func (w *writer) sendEvents(r *round, tenantID string, rows []ledger.Row, at calendar.Micros) {
	w.plain.reset()
	w.full.reset()
	for i := range rows {
		row := &rows[i]
		switch {
		case row.Event == nil:
		case isPlain(row.Event):
			w.plain.add(row.Event, row.Seq)
		default:
			w.full.add(row.Event, row.Seq)
			w.full.addRest(row.Event)
		}
	}
	if w.plain.key.n > 0 {
		r.send(addPlainEvents, nil, w.plain.plain(tenantID, at)...)
	}
	if w.full.key.n > 0 {
		r.send(addEvents, nil, w.full.full(tenantID, at)...)
	}
}

// sendRest adds the changes, and what all rows leave behind.
func (w *writer) sendRest(r *round, a *addition) error {
	w.changes.reset()
	entities := newEntities()
	for i := range a.rows {
		row := &a.rows[i]
		if row.Change == nil {
			continue
		}
		state, err := ledger.DecodeState(row)
		if err != nil {
			return err
		}
		w.changes.add(row, state)
		entities.put(row, state)
	}
	if w.changes.seq.n > 0 {
		r.send(addChanges, nil, w.changes.params(a.tenantID, a.at)...)
	}
	entities.send(r, a)
	w.sendCounters(r, a)
	w.sendMembers(r, a)
	return nil
}

func (w *writer) sendCounters(r *round, a *addition) {
	w.plainCounters.reset()
	w.counters.reset()
	for _, c := range a.cells {
		if isPlainCounter(&c.Counter) {
			w.plainCounters.add(c.place, &c.Counter)
			continue
		}
		w.counters.add(c.place, &c.Counter)
		w.counters.addRest(&c.Counter)
	}
	if w.plainCounters.month.n > 0 {
		r.send(putPlainCounters, nil, w.plainCounters.plain(a.tenantID)...)
	}
	if w.counters.month.n > 0 {
		r.send(putCounters, nil, w.counters.full(a.tenantID)...)
	}
}

func (w *writer) sendMembers(r *round, a *addition) {
	if len(a.joined) == 0 {
		return
	}
	w.memberAt.reset()
	w.member.reset(oidText)
	w.generation.reset(oidInt4)
	w.onTime.reset(oidBool)
	for k, onTime := range a.joined {
		w.memberAt.month.month(k.id.Month)
		w.memberAt.meter.text(a.config.catalog.Number(k.id.Meter).Slug)
		w.memberAt.customer.text(k.id.Customer)
		w.member.text(k.member)
		w.generation.int4(int32(k.generation))
		w.onTime.bool(onTime)
	}
	r.send(putMembers, nil, append(w.memberAt.params(a.tenantID), w.member.param(), w.generation.param(), w.onTime.param())...)
}

// entities are the latest states among some changes: the last one of each, because a statement writes a row once.
type entities struct {
	tenant *ledger.Row
	rows   map[[2]string]*ledger.Row
	meters map[string]uint32 // slug → number
}

func newEntities() *entities {
	return &entities{rows: map[[2]string]*ledger.Row{}, meters: map[string]uint32{}}
}

func (e *entities) put(r *ledger.Row, s ledger.State) {
	switch {
	case s.Tenant != nil:
		e.tenant = r
	case s.Key != nil:
		e.rows[[2]string{kindKey, s.Key.ID}] = r
	case s.Meter != nil:
		e.rows[[2]string{kindMeter, s.Meter.Slug}] = r
		e.meters[s.Meter.Slug] = s.Meter.Number
	case s.Close != nil:
		e.rows[[2]string{kindPeriod, s.Close.Month.String()}] = r
	}
}

func (e *entities) send(r *round, a *addition) {
	id := []byte(a.tenantID)
	if e.tenant != nil {
		r.send(putTenant, nil, id, int8Param(int64(e.tenant.Seq)), timeParam(e.tenant.At), e.tenant.Change.State)
	}
	if len(e.rows) > 0 {
		var kind, name, seq, at, state, used array
		for _, x := range [...]*array{&kind, &name, &state} {
			x.reset(oidText)
		}
		seq.reset(oidInt8)
		at.reset(oidTimestamptz)
		used.reset(oidBool)
		for k, row := range e.rows {
			kind.text(k[0])
			name.text(k[1])
			seq.int8(int64(row.Seq))
			at.time(row.At)
			state.bytes(row.Change.State)
			used.bool(k[0] == kindMeter && a.config.used[e.meters[k[1]]])
		}
		r.send(putEntities, nil, id, kind.param(), name.param(), seq.param(), at.param(), state.param(), used.param())
	}
	if len(a.newlyUse) > 0 {
		var slugs []string
		for _, n := range a.newlyUse {
			slugs = append(slugs, a.config.catalog.Number(n).Slug)
		}
		r.send(useMeters, nil, id, textsParam(slugs))
	}
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
		chain := in.next(len(h.Chain))
		h.Clock, h.version = in.time(), uint64(in.int8())
		h.now = max(h.Clock, s.now(in.time()))
		if in.err != nil {
			return fmt.Errorf("read the head: %w", in.err)
		}
		copy(h.Chain[:], chain)
		if h.Seq >= grownAt && !s.grown.Load() {
			s.grown.Store(true)
		}
		return nil
	}
}
