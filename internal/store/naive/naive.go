// Package naive is the store that is too simple to be wrong: each tenant is a list of rows in memory, and everything
// else is a plain fold over that list, made anew whenever it is asked for. It is the oracle of every test and never a
// product.
package naive

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/following"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// Options of a naive store.
type Options struct {
	Now   func() time.Time // default: time.Now
	Kinds *entity.Kinds    // default: all of this build
}

// Store keeps everything in memory.
type Store struct {
	now   func() time.Time
	kinds *entity.Kinds

	closed    atomic.Bool
	followers *following.Book
	bell      following.Bell

	mu      sync.RWMutex // guards all below
	tenants map[string]*book
}

var _ store.Store = (*Store)(nil)

// New makes an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Kinds == nil {
		o.Kinds = kinds.All()
	}
	return &Store{now: o.Now, kinds: o.Kinds, tenants: map[string]*book{},
		followers: following.New(o.Now, nowhere{}, nil)}
}

// book is one tenant's ledger: the rows, where the sections begin, and what the changes among the rows say.
type book struct {
	kinds    *entity.Kinds
	rows     []ledger.Row
	sections []uint64 // first seq of each
	head     ledger.Head
	hasher   ledger.Hasher
	resident *resident.Set
	// Five indexes keep tests of some thousand rows quick. They hold nothing that a scan would not find.
	entities    map[entityName][]int // changes that left a state
	keys        map[usage.Key]int
	counters    map[usage.CounterID][]int
	corrections map[string][]int // by the id of the corrected fact
	alerts      map[usage.CounterID][]int
	// gone are the rows that have left: nobody is shown them any more. Folds still see them, so that the oracle needs
	// no base.
	gone  map[uint64]bool
	tiles map[tileName]tree.Hash
}

type tileName struct {
	level int
	index uint64
}

type entityName struct{ kind, id string }

func newBook(k *entity.Kinds) *book {
	t := &book{kinds: k, resident: resident.Empty(k), gone: map[uint64]bool{}, tiles: map[tileName]tree.Hash{}}
	t.clear()
	return t
}

// clear forgets what is derived from the rows, apart from the resident entities.
func (t *book) clear() {
	t.entities, t.keys = map[entityName][]int{}, map[usage.Key]int{}
	t.alerts = map[usage.CounterID][]int{}
	t.counters, t.corrections = map[usage.CounterID][]int{}, map[string][]int{}
}

func notFound(id string) error { return problem.New(problem.NotFound, "no tenant %q", id) }

func (s *Store) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return problem.New(problem.Unavailable, "the store is closed")
	}
	return nil
}

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	t := s.tenants[b.Tenant]
	if t == nil {
		return nil, notFound(b.Tenant)
	}
	if err := t.resident.CheckKeptHere(); err != nil {
		return nil, err
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	now, from := t.tick(s.now()), len(t.rows)
	prepare := usage.NewPreparer(t.Catalog())
	facts := make([]usage.Fact, len(b.Events))
	for i := range facts {
		prepare.Prepare(&b.Events[i], &facts[i])
	}
	verdicts, alerts := make([]usage.Verdict, len(b.Events)), 0
	if b.Atomic {
		refused, err := usage.Rehearse(t, func(i int) *usage.Fact { return &facts[i] }, t.head.Seq+1, now, verdicts)
		if refused || err != nil {
			return verdicts, err
		}
	}
	for i := range facts {
		row := &usage.Row{}
		verdicts[i] = usage.Judge(t, &facts[i], t.head.Seq+1, now, row)
		if verdicts[i].Kept() {
			t.keep(ledger.Row{At: now, By: b.By, Event: row.Clone()})
			alerts += t.alert(row, now, quota.MaxAlerts-alerts)
		}
	}
	t.seal(from)
	s.bell.Ring()
	return verdicts, nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	t, err := s.bookOf(id)
	if err != nil {
		return err
	}
	before, from, head := t.resident, len(t.rows), t.head
	now := t.tick(s.now())
	err = store.RunUpdate(fn, &tx{view{t, now}})
	if err == nil && !t.resident.Exists() {
		err = notFound(id)
	}
	if err != nil {
		t.forget(from, before, head)
		return err
	}
	t.seal(from)
	s.tenants[id] = t
	s.bell.Ring()
	return nil
}

// bookOf returns a tenant's ledger, a new one for a tenant that is not there yet. A deployment that was moved takes no
// new tenants.
func (s *Store) bookOf(id string) (*book, error) {
	if t := s.tenants[id]; t != nil {
		return t, nil
	}
	if operator := s.tenants[tenant.Operator]; operator != nil {
		if err := operator.resident.CheckKeptHere(); err != nil {
			return nil, err
		}
	}
	return newBook(s.kinds), nil
}

// Import implements store.Store.
func (s *Store) Import(ctx context.Context, id string, sec ledger.Section) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	t, err := s.bookOf(id)
	if err != nil {
		return err
	}
	if sec.First != t.head.Seq+1 || len(sec.Rows) == 0 {
		return problem.New(problem.Conflict, "the ledger of %s ends with row %d: a section from %d on does not follow",
			id, t.head.Seq, sec.First)
	}
	if err := t.resident.CheckKeptHere(); err != nil {
		return err
	}
	before, from, head := t.resident, len(t.rows), t.head
	for _, r := range sec.Rows {
		own := r.Clone()
		own.At = sec.At
		if r.Kind() != ledger.ChangeRow {
			t.keep(own)
			continue
		}
		if err := t.change(own); err != nil {
			t.forget(from, before, head)
			return err
		}
	}
	if !t.resident.Exists() {
		return notFound(id)
	}
	t.seal(from)
	s.tenants[id] = t
	s.bell.Ring()
	return nil
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, id string, fn func(store.View) error) error {
	if err := s.ready(ctx); err != nil { // before a Close that waits for other Views
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.ready(ctx); err != nil {
		return err
	}
	t := s.tenants[id]
	if t == nil {
		return notFound(id)
	}
	return fn(view{t, max(t.head.Clock, calendar.FromTime(s.now()))})
}

// Access implements store.Store.
func (s *Store) Access(ctx context.Context, id, keyID string) (a store.Access, err error) {
	err = s.View(ctx, id, func(store.View) error {
		a, err = s.tenants[id].resident.Access(keyID)
		return err
	})
	return a, err
}

// Tenants implements store.Store.
func (s *Store) Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var out []store.Listed
	for id, t := range s.tenants {
		if id > after && id != tenant.Operator {
			e, _ := t.resident.Entity(tenant.Kind.Name, tenant.Self)
			out = append(out, store.Listed{ID: id, Entity: e})
		}
	}
	slices.SortFunc(out, func(a, b store.Listed) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(limit, len(out))], nil
}

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error { return s.ready(ctx) }

// Close implements store.Store. What was recorded is gone with the store.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.mu.Lock() // when the last View has ended
	defer s.mu.Unlock()
	return nil
}

// tick is the time that this commit sees: never before the last one's.
func (t *book) tick(now time.Time) calendar.Micros {
	return max(t.head.Clock, calendar.FromTime(now))
}

// keep numbers a row, appends it and takes note of what it says.
func (t *book) keep(r ledger.Row) {
	t.head.Seq++
	r.Seq = t.head.Seq
	t.rows = append(t.rows, r)
	t.index(len(t.rows) - 1)
}

// change keeps a change row, unless this build must not. Errors: see entity.Kinds.Entry and resident.Set.
func (t *book) change(r ledger.Row) error {
	if !r.Change.State.IsZero() {
		e := r.Entity()
		e.Seq = t.head.Seq + 1
		if _, err := t.kinds.Entry(&e); err != nil {
			return err
		}
		if _, err := t.resident.EffectOf(&e); err != nil {
			return err
		}
		next, err := t.resident.With(&e)
		if err != nil {
			return err
		}
		t.resident = next
	}
	t.keep(r)
	return nil
}

func (t *book) index(i int) {
	r := &t.rows[i]
	if r.Kind() == ledger.EventRow {
		t.indexEvent(i)
	}
	e := r.Entity()
	if e.IsZero() {
		return
	}
	name := entityName{e.Kind, e.ID}
	t.entities[name] = append(t.entities[name], i)
	effect := effectOf(r)
	if a := effect.Adjustment; a != nil {
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		t.counters[id] = append(t.counters[id], i)
	}
	if a := effect.Alert; a != nil {
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		t.alerts[id] = append(t.alerts[id], i)
	}
}

func (t *book) indexEvent(i int) {
	r := &t.rows[i]
	if !t.gone[r.Seq] {
		t.keys[r.Event.Key] = i
		if r.Event.IsCorrection() {
			t.corrections[r.Event.Corrects] = append(t.corrections[r.Event.Corrects], i)
		}
	}
	for _, o := range r.Event.Outcomes {
		id := usage.CounterID{Meter: o.Meter, Customer: r.Event.Customer, Month: r.Event.Month()}
		t.counters[id] = append(t.counters[id], i)
	}
}

// forget takes away rows that a failed update had appended.
func (t *book) forget(from int, before *resident.Set, head ledger.Head) {
	t.rows, t.resident, t.head = t.rows[:from], before, head
	t.clear()
	for i := range t.rows {
		t.index(i)
	}
}

// seal ends the section that began at row index from.
func (t *book) seal(from int) {
	if from == len(t.rows) {
		return
	}
	rows := t.rows[from:]
	t.sections = append(t.sections, rows[0].Seq)
	var tiles []tree.Tile
	t.head.Tree, tiles = t.hasher.Grow(t.head.Tree, t.resident.TreeKeys, rows, nil)
	for _, tile := range tiles {
		t.tiles[tileName{tile.Level, tile.Index}] = tile.Hash
	}
	t.head.Clock = rows[0].At
}

func byPlace(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter),
		strings.Compare(a.Customer, b.Customer))
}
