package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// diary is what the outside world knows of a store: what it sent, and what it was answered.
type diary struct {
	mu    sync.Mutex // guards what follows
	sent  []sentBatch
	notes []note

	open atomic.Pointer[Engine] // whose readers come at the worst of times
}

type sentBatch struct {
	tenant string
	events []usage.Event
	own    []string // ids that no other batch has
	atomic bool     // and refused: nothing of its own is ever there
}

// note is one thing that somebody was answered.
type note struct {
	tenant string
	id     string // a fact that was answered with this seq
	seq    uint64
	change bool // the row of that number is a change
	tree   *tree.Tree
	count  int64 // a reader saw that many facts in the watched counter
}

func (d *diary) answered() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.notes)
}

func (d *diary) note(n ...note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, n...)
}

// peek is a reader that comes just before the power fails.
func (d *diary) peek() {
	e := d.open.Load()
	if e == nil {
		return
	}
	for _, id := range crashTenants {
		if b, err := e.book(id); err == nil {
			head := b.published.Load().head
			d.note(note{tenant: id, seq: head.Seq, tree: &head.Tree})
		}
	}
}

func (d *diary) copies() ([]sentBatch, []note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent, d.notes
}

// holds compares what a start found with what had been answered.
func (d *diary) holds(got map[string]*recovered, answered int) error {
	sent, notes := d.copies()
	for _, n := range notes[:answered] {
		r := got[n.tenant]
		switch {
		case n.id != "" && r.rows[n.id] != n.seq:
			return fmt.Errorf("%s was answered that %q is row %d, now it is row %d", n.tenant, n.id, n.seq,
				r.rows[n.id])
		case n.change && (r.head < n.seq || r.kinds[n.seq-1] != ledger.ChangeRow):
			return fmt.Errorf("%s was answered that row %d is a change, now it is not, of %d rows", n.tenant, n.seq,
				r.head)
		case n.tree != nil && r.trees[n.seq] != *n.tree:
			return fmt.Errorf("%s was shown a root of %x after row %d, now it is %x", n.tenant, n.tree.Root(), n.seq,
				r.trees[n.seq].Root())
		case r.count < n.count:
			return fmt.Errorf("%s was shown %d facts in a counter, now it has %d", n.tenant, n.count, r.count)
		}
	}
	known := map[string]bool{}
	for _, b := range sent {
		here := 0
		for _, id := range b.own {
			if got[b.tenant].rows[id] != 0 {
				here++
			}
		}
		if b.atomic && here != 0 {
			return fmt.Errorf("%s has %d of a refused batch with %v", b.tenant, here, b.own)
		}
		if here != 0 && here != len(b.own) {
			return fmt.Errorf("%s has %d of a batch with %v", b.tenant, here, b.own)
		}
		for i := range b.events {
			known[b.tenant+"/"+b.events[i].ID] = true
		}
	}
	for tenant, r := range got {
		for id := range r.rows {
			if !known[tenant+"/"+id] {
				return fmt.Errorf("%s has %q, which nobody sent", tenant, id)
			}
		}
	}
	return nil
}

// sendAgain repeats everything, as clients do that got no answer. What was there is recognized, the rest is recorded,
// once.
func (d *diary) sendAgain(e *Engine, before map[string]*recovered) error {
	sent, _ := d.copies()
	for _, id := range crashTenants {
		if before[id].head == 0 {
			if err := whenFree(func() error { return createLimited(e, id) }); err != nil {
				return err
			}
		}
	}
	for _, b := range sent {
		vs, err := patiently(e, b)
		if err != nil {
			return err
		}
		for i, v := range vs {
			if b.atomic {
				break // refused again
			}
			seq, known := before[b.tenant].rows[b.events[i].ID]
			if v.Seq == 0 || known && (v.Seq != seq || v.Status != usage.Duplicate && v.Status != usage.Conflict) {
				return fmt.Errorf("%s sends %q again, which was row %d: %+v", b.tenant, b.events[i].ID, seq, v)
			}
		}
	}
	for _, id := range crashTenants {
		if _, err := readBack(e, id); err != nil {
			return err
		}
	}
	return nil
}

var crashTenants = []string{"acme", "globex"}

// crashMeters: the first is the watched one; the second cannot subtract, so that corrections read rows again; the third
// makes most of what is not the newest an adjustment.
func crashMeters() []meter.Meter {
	picky := storetest.NewMeter("picky", meter.Sum)
	picky.Lateness = 0
	return []meter.Meter{storetest.NewMeter("calls", meter.Sum), storetest.NewMeter("low", meter.Min), picky}
}

// createLimited makes a tenant whose plans report thresholds and refuse nothing, so that rows that nobody sent stand
// between those that somebody did.
func createLimited(e *Engine, id string) error {
	return e.Update(context.Background(), id, func(tx store.Tx) error {
		if err := storetest.PutTenant(tx, storetest.Tenant(id, tx.Now())); err != nil {
			return err
		}
		for _, m := range crashMeters() {
			if err := storetest.PutMeter(tx, m); err != nil {
				return err
			}
		}
		q := quota.Quota{Meter: "calls", Limit: storetest.Amount("20"), Soft: true, Thresholds: []uint16{5, 30}}
		if err := storetest.PutPlan(tx, quota.Plan{Name: "open", Quotas: []quota.Quota{q}}); err != nil {
			return err
		}
		if err := storetest.Assign(tx, "", "open"); err != nil {
			return err
		}
		return storetest.Assign(tx, watchedCounter.Customer, "open")
	})
}

// session is one submitter of a workload.
type session struct {
	e    *Engine
	log  *diary
	rng  *rand.Rand
	name string
	n    int
	low  map[string][]string // facts that can be corrected, by tenant
}

// run plays one workload under the eyes of the lab: a first start, facts one after the other, facts side by side, a
// power failure, and more of both; and in the end a clean close.
func (l *lab) run(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	mem, log := vfs.NewCrashableMem(), &diary{}
	for phase := range 2 {
		name := fmt.Sprintf("workload %d.%d", seed, phase)
		e, err := Open(tiny(l.watch(mem, log, name), l.clock.Now))
		if err != nil {
			l.t.Fatalf("%s: %v", name, err)
		}
		log.open.Store(e)
		err = l.play(e, log, rng, phase)
		log.open.Store(nil)
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
		if closed := e.Close(); err == nil {
			err = closed
		}
		if err != nil {
			l.t.Fatalf("%s: %v", name, err)
		}
		if seed%2 == 0 {
			mem = crashed // else the second phase starts from what was closed
		}
	}
}

func (l *lab) play(e *Engine, log *diary, rng *rand.Rand, phase int) error {
	if phase == 0 {
		for _, id := range crashTenants {
			if err := whenFree(func() error { return createLimited(e, id) }); err != nil {
				return err
			}
			log.note(note{tenant: id, seq: uint64(1 + len(crashMeters())), change: true})
		}
	}
	alone := &session{e: e, log: log, rng: rng, name: fmt.Sprint("p", phase), low: map[string][]string{}}
	for range 5 {
		if err := alone.step(); err != nil {
			return err
		}
		l.clock.Advance(time.Second)
	}
	const together = 3
	errs := make([]error, together)
	var wg sync.WaitGroup
	for i := range together {
		s := &session{e: e, log: log, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), name: fmt.Sprint("p", phase, "s", i),
			low: map[string][]string{}}
		wg.Go(func() {
			for range 3 {
				if errs[i] == nil {
					errs[i] = s.step()
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// step does one thing and writes down what came of it.
func (s *session) step() error {
	tenant := crashTenants[s.rng.IntN(len(crashTenants))]
	switch s.rng.IntN(9) {
	case 0:
		return s.change(tenant)
	case 8:
		return s.refuse(tenant)
	case 1, 2:
		return s.look(tenant)
	default:
		return s.record(tenant)
	}
}

func (s *session) change(tenant string) error {
	var seq uint64
	err := whenFree(func() error {
		return s.e.Update(context.Background(), tenant, func(tx store.Tx) error {
			id, err := storetest.Adjust(tx, "picky", "d", storetest.Month, "1", "")
			seq, _, _ = usage.ParseAdjustmentID(id)
			return err
		})
	})
	if err == nil {
		s.log.note(note{tenant: tenant, seq: seq, change: true})
	}
	return err
}

// look notes what a reader was shown: it must be as durable as an answer.
func (s *session) look(tenant string) error {
	return s.e.View(context.Background(), tenant, func(v store.View) error {
		head := v.Head()
		c, err := v.Counter(watchedCounter)
		if err != nil {
			return err
		}
		s.log.note(note{tenant: tenant, seq: head.Seq, tree: &head.Tree}, note{tenant: tenant, count: c.All().Count})
		return nil
	})
}

// record sends facts of its own, facts that others send too, with the same content or not, and corrections.
func (s *session) record(tenant string) error {
	b := sentBatch{tenant: tenant}
	for range 1 + s.rng.IntN(3) {
		s.n++
		id := s.name + "-" + strconv.Itoa(s.n)
		at := storetest.Ago(time.Duration(s.rng.IntN(60)) * time.Minute)
		switch s.rng.IntN(4) {
		case 0:
			b.events = append(b.events, storetest.Fact(id, "low", "d", at, fmt.Sprint(2+s.rng.IntN(8))))
			s.low[tenant] = append(s.low[tenant], id)
		case 1:
			b.events = append(b.events, storetest.Fact(id, "picky", "d", at, "1"))
		default:
			b.events = append(b.events, storetest.Fact(id, "calls", "c", at, "1"))
		}
		b.own = append(b.own, id)
	}
	for range 1 + s.rng.IntN(2) {
		content := 1 + s.rng.IntN(6)/5 // one in six differs
		b.events = append(b.events, storetest.Fact(fmt.Sprint("shared-", s.rng.IntN(12)), "calls", "c",
			storetest.Ago(0), fmt.Sprint(content)))
	}
	if low := s.low[tenant]; len(low) > 0 && s.rng.IntN(2) == 0 {
		id := "fix-" + low[0]
		b.events = append(b.events, storetest.Correction(id, low[0], "-1"))
		b.own = append(b.own, id)
		s.low[tenant] = low[1:]
	}
	s.log.mu.Lock()
	s.log.sent = append(s.log.sent, b)
	s.log.mu.Unlock()
	return s.send(b)
}

// refuse sends an atomic batch of which one fact is refused.
func (s *session) refuse(tenant string) error {
	s.n++
	id := s.name + "-" + strconv.Itoa(s.n)
	b := sentBatch{tenant: tenant, atomic: true, own: []string{id, id + "'"}, events: []usage.Event{
		storetest.Fact(id, "calls", "c", storetest.Ago(0), "1"),
		storetest.Fact("none", "nothing", "c", storetest.Ago(0), "1"),
		storetest.Fact(id+"'", "low", "d", storetest.Ago(0), "1"),
	}}
	s.log.mu.Lock()
	s.log.sent = append(s.log.sent, b)
	s.log.mu.Unlock()
	vs, err := patiently(s.e, b)
	if err == nil && (vs[0].Status != usage.Withheld || vs[2].Status != usage.Withheld) {
		return fmt.Errorf("%s sends %q in a batch that is refused: %+v", tenant, id, vs)
	}
	return err
}

func (s *session) send(b sentBatch) error {
	vs, err := patiently(s.e, b)
	if err != nil {
		return err
	}
	var notes []note
	for i, v := range vs {
		if v.Seq == 0 {
			return fmt.Errorf("%s sends %q: %+v", b.tenant, b.events[i].ID, v.Problem)
		}
		notes = append(notes, note{tenant: b.tenant, id: b.events[i].ID, seq: v.Seq})
	}
	s.log.note(notes...)
	return nil
}

// patiently sends a batch until the store has time for it.
func patiently(e *Engine, b sentBatch) (vs []usage.Verdict, err error) {
	err = whenFree(func() error {
		vs, err = e.Record(context.Background(), store.Batch{Tenant: b.tenant, Atomic: b.atomic,
			Events: append([]usage.Event(nil), b.events...)})
		return err
	})
	return vs, err
}

// whenFree repeats what was refused because the store was busy, which promises that nothing was changed.
func whenFree(do func() error) error {
	for {
		if err := do(); !problem.Is(err, problem.Busy) {
			return err
		}
		runtime.Gosched()
	}
}
