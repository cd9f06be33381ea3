package move_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/move"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// filled is a store with the operator and two tenants, each with several sections.
func filled(t *testing.T) *naive.Store {
	t.Helper()
	s := naive.New(naive.Options{Now: storetest.NewClock().Now})
	for _, id := range []string{tenant.Operator, "acme", "globex"} {
		if err := storetest.Create(s, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
		for _, event := range []string{"a", "b", "c"} {
			record(t, s, id, event)
		}
	}
	return s
}

func record(t *testing.T, s store.Store, id, event string) {
	t.Helper()
	events := []usage.Event{storetest.Fact(event, "calls", "c1", storetest.Ago(0), "2")}
	if _, err := s.Record(context.Background(), store.Batch{Tenant: id, Events: events}); err != nil {
		t.Fatal(err)
	}
}

// place is where the ledgers of these tests go.
const place = "postgres://db.internal/ledger"

// breaking fails every write after some: imports into a target, marks in a source.
type breaking struct {
	store.Store
	left *int
}

var errBroken = errors.New("the network is gone")

func (b breaking) use() error {
	if *b.left--; *b.left < 0 {
		return errBroken
	}
	return nil
}

func (b breaking) Import(ctx context.Context, id string, s ledger.Section) error {
	if err := b.use(); err != nil {
		return err
	}
	return b.Store.Import(ctx, id, s)
}

func (b breaking) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if err := b.use(); err != nil {
		return err
	}
	return b.Store.Update(ctx, id, fn)
}

// Given a move that breaks off after any number of writes, sections at the target and marks at the source alike, when
// it is run again, then the target is what the source was, and the source is marked. A third run has nothing to do.
func TestAMoveThatBrokeOffGoesOn(t *testing.T) {
	for left := range 16 {
		from := filled(t)
		fs := vfs.NewMem()
		o := engine.Options{Dir: "data", FS: fs, Now: storetest.NewClock().Now, SegmentBytes: 1 << 20}
		to, err := engine.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		budget := left
		first, err := move.Run(context.Background(), breaking{from, &budget}, breaking{to, &budget},
			move.Options{Place: place})
		if (err != nil) != errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if to, err = engine.Open(o); err != nil {
			t.Fatal(err)
		}
		done, total, verified := uint64(0), uint64(0), 0
		options := move.Options{Place: place, Progress: func(d, of uint64) { done, total = d, of },
			Verify: func(context.Context) error { verified++; return nil }}
		second, err := move.Run(context.Background(), from, to, options)
		if err != nil {
			t.Fatal(err)
		}
		if done != total || done != second.Rows || first.Moved+second.Moved != second.Rows || second.Tenants != 2 ||
			first.Marked+second.Marked != 3 || verified != 1 {
			t.Errorf("after %d writes: %+v, then %+v, progress %d of %d, verified %d times", left, first,
				second, done, total,
				verified)
		}
		storetest.Compare(t, filled(t), to, "acme", "globex", tenant.Operator)
		if report, err := verify.Run(context.Background(), to, verify.Options{}); err != nil || !report.OK() {
			t.Errorf("%+v, %v", report, err)
		}
		wantMarked(t, from)
		if third, err := move.Run(context.Background(), from, to, options); err != nil || third.Moved != 0 ||
			third.Marked != 0 || third.Rows != second.Rows {
			t.Errorf("a third run: %+v, %v", third, err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantMarked wants every ledger of a source marked, intact and closed to writes.
func wantMarked(t *testing.T, from store.Store) {
	t.Helper()
	ctx := context.Background()
	if done, err := move.Done(ctx, from, place); err != nil || !done {
		t.Errorf("the source is marked: %v, %v", done, err)
	}
	for _, id := range []string{tenant.Operator, "acme", "globex"} {
		_, err := from.Record(ctx, store.Batch{Tenant: id, Events: []usage.Event{storetest.Fact("late", "calls", "c1",
			storetest.Ago(0), "2")}})
		if !problem.Is(err, problem.Moved) || !strings.Contains(err.Error(), place) {
			t.Errorf("a fact after the move: %v", err)
		}
	}
	if err := storetest.Create(from, "newcomer"); !problem.Is(err, problem.Moved) {
		t.Errorf("a tenant after the move: %v", err)
	}
	if report, err := verify.Run(ctx, from, verify.Options{}); err != nil || !report.OK() {
		t.Errorf("the source: %+v, %v", report, err)
	}
}

// growing writes to a store before each of its next updates, as a server does that was not stopped.
type growing struct {
	*naive.Store
	before []func()
}

func (g *growing) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if len(g.before) > 0 {
		next := g.before[0]
		g.before = g.before[1:]
		next()
	}
	return g.Store.Update(ctx, id, fn)
}

// Given a source that is still written to, when rows and a tenant come between the look at its head and its mark, then
// they are at the target before the mark is made, and the target is verified again.
func TestWhatComesBeforeTheMarkIsMovedToo(t *testing.T) {
	source := filled(t)
	from := &growing{Store: source}
	create := func(id string) {
		if err := storetest.Create(source, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	from.before = []func(){
		func() { record(t, source, "acme", "late 1") }, // the mark of acme
		func() { record(t, source, "acme", "late 2") }, // and again
		func() {}, // acme is marked
		func() { record(t, source, "globex", "late") },
		func() {},                     // globex is marked
		func() { create("newcomer") }, // the operator's mark does not wait for it
	}
	to, verified := naive.New(naive.Options{Now: storetest.NewClock().Now}), 0
	report, err := move.Run(context.Background(), from, to, move.Options{Place: place,
		Verify: func(context.Context) error { verified++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if len(from.before) != 0 || report.Marked != 4 || report.Tenants != 3 || report.Moved != report.Rows ||
		verified != 2 {
		t.Errorf("%+v, verified %d times, %d writes left", report, verified, len(from.before))
	}
	reference := filled(t)
	record(t, reference, "acme", "late 1")
	record(t, reference, "acme", "late 2")
	record(t, reference, "globex", "late")
	if err := storetest.Create(reference, "newcomer", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	storetest.Compare(t, reference, to, "acme", "globex", "newcomer", tenant.Operator)
	wantMarked(t, from)
}

func TestASourceThatNeverRestsIsNotMarked(t *testing.T) {
	source := filled(t)
	from := &growing{Store: source}
	for n := range 200 {
		from.before = append(from.before, func() { record(t, source, "acme", fmt.Sprint("n", n)) })
	}
	to := naive.New(naive.Options{Now: storetest.NewClock().Now})
	if _, err := move.Run(context.Background(), from, to, move.Options{Place: place}); !errors.Is(err, move.ErrGrows) {
		t.Errorf("%v", err)
	}
	record(t, source, "acme", "still taken")
}

// Given a ledger that was moved on, when it is moved to another empty store, then it is not marked there, and takes
// facts.
func TestALedgerThatCameBackTakesFacts(t *testing.T) {
	a, b, c := filled(t), naive.New(naive.Options{Now: storetest.NewClock().Now}),
		naive.New(naive.Options{Now: storetest.NewClock().Now})
	for _, leg := range []struct {
		from, to store.Store
		place    string
	}{{a, b, "b"}, {b, c, "c"}} {
		if _, err := move.Run(context.Background(), leg.from, leg.to, move.Options{Place: leg.place}); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Compare(t, filled(t), c, "acme", "globex", tenant.Operator)
	record(t, c, "acme", "back")
	for name, leg := range map[string]struct{ from, to store.Store }{
		"a source that was moved elsewhere": {a, naive.New(naive.Options{})},
		"a target that was moved":           {c, a},
	} {
		if _, err := move.Run(context.Background(), leg.from, leg.to, move.Options{Place: "d"}); !errors.Is(err,
			move.ErrMovedElsewhere) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Given a target that was lost after the move, when the move is run again to the same place, then everything but the
// marks is there.
func TestALostTargetIsFilledAgain(t *testing.T) {
	from := filled(t)
	mustMove(t, from, naive.New(naive.Options{Now: storetest.NewClock().Now}))
	again := naive.New(naive.Options{Now: storetest.NewClock().Now})
	mustMove(t, from, again)
	storetest.Compare(t, filled(t), again, "acme", "globex", tenant.Operator)
}

// Given a target that was served after the move, when the move is run again, then it is done and the target is left
// alone.
func TestATargetThatLivesOnIsLeftAlone(t *testing.T) {
	from, to := filled(t), naive.New(naive.Options{Now: storetest.NewClock().Now})
	mustMove(t, from, to)
	record(t, to, "acme", "new")
	if report, err := move.Run(context.Background(), from, to, move.Options{Place: place}); err != nil ||
		report.Moved != 0 || report.Marked != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestACopyIsNotMarked(t *testing.T) {
	from := filled(t)
	if _, err := move.Run(context.Background(), from, naive.New(naive.Options{Now: storetest.NewClock().Now}),
		move.Options{}); err != nil {
		t.Fatal(err)
	}
	record(t, from, "acme", "more")
}

// Given a target that does not verify, then the source is not marked.
func TestATargetThatDiffersLeavesTheSourceInCharge(t *testing.T) {
	from, failed := filled(t), errors.New("a counter differs")
	_, err := move.Run(context.Background(), from, naive.New(naive.Options{Now: storetest.NewClock().Now}),
		move.Options{Place: place, Verify: func(context.Context) error { return failed }})
	if !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	record(t, from, "acme", "more")
}

func TestAnotherLedgerAtTheTargetIsLeftAlone(t *testing.T) {
	for name, disturb := range map[string]func(to *naive.Store){
		"a tenant of its own": func(to *naive.Store) { _ = storetest.Create(to, "stranger") },
		"the same tenant, anew": func(to *naive.Store) {
			_ = storetest.Create(to, "acme", storetest.NewMeter("other", meter.Sum))
		},
		"more rows than we have": func(to *naive.Store) { mustMove(t, filled(t), to); record(t, to, "acme", "z") },
		"other rows, as many": func(to *naive.Store) {
			_ = storetest.Create(to, "acme", storetest.NewMeter("calls", meter.Max))
			record(t, to, "acme", "a")
		},
	} {
		from, to := filled(t), naive.New(naive.Options{Now: storetest.NewClock().Now})
		disturb(to)
		_, err := move.Run(context.Background(), from, to, move.Options{Place: place})
		if !errors.Is(err, move.ErrDiffers) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bent shows another head of one tenant than it has.
type bent struct {
	store.Store
	bend func(*ledger.Head)
}

func (b *bent) View(ctx context.Context, id string, fn func(store.View) error) error {
	return b.Store.View(ctx, id, func(v store.View) error {
		if id != "globex" {
			return fn(v)
		}
		return fn(&bentView{v, b.bend})
	})
}

type bentView struct {
	store.View
	bend func(*ledger.Head)
}

func (v *bentView) Head() ledger.Head {
	h := v.View.Head()
	if h.Seq > 0 {
		v.bend(&h)
	}
	return h
}

// forgetful acknowledges a section and does not keep it.
type forgetful struct {
	store.Store
	section int
}

func (f *forgetful) Import(ctx context.Context, id string, s ledger.Section) error {
	if f.section--; f.section == 0 {
		return nil
	}
	return f.Store.Import(ctx, id, s)
}

// Given a head, at either side, that is not what the rows give, whichever part of it is off, then a move does not end
// well.
func TestAMoveComparesHeads(t *testing.T) {
	for name, bend := range map[string]func(*ledger.Head){
		"a row less":    func(h *ledger.Head) { h.Seq-- },
		"a row more":    func(h *ledger.Head) { h.Seq++ },
		"another tree":  func(h *ledger.Head) { h.Tree = otherTree(h.Tree) },
		"another clock": func(h *ledger.Head) { h.Clock++ },
	} {
		to := naive.New(naive.Options{Now: storetest.NewClock().Now})
		_, err := move.Run(context.Background(), filled(t), &bent{to, bend}, move.Options{})
		if !errors.Is(err, move.ErrDiffers) {
			t.Errorf("%s at the target: %v", name, err)
		}
		to = naive.New(naive.Options{Now: storetest.NewClock().Now})
		_, err = move.Run(context.Background(), &bent{filled(t), bend}, to, move.Options{})
		if !errors.Is(err, move.ErrBroken) {
			t.Errorf("%s at the source: %v", name, err)
		}
	}
}

// A target that loses its last section, and says that it has it, is found out.
func TestASectionThatIsLostOnTheWay(t *testing.T) {
	sections := 12 // of three tenants: the last one of each, and of all
	for _, lost := range []int{4, 8, sections} {
		to := naive.New(naive.Options{Now: storetest.NewClock().Now})
		_, err := move.Run(context.Background(), filled(t), &forgetful{to, lost}, move.Options{})
		if !errors.Is(err, move.ErrDiffers) {
			t.Errorf("section %d: %v", lost, err)
		}
	}
}

func mustMove(t *testing.T, from, to store.Store) {
	t.Helper()
	if _, err := move.Run(context.Background(), from, to, move.Options{Place: place}); err != nil {
		t.Fatal(err)
	}
}

// Every tenant is moved, and looked for at the target, however few the stores list at a time.
func TestEveryTenantIsMoved(t *testing.T) {
	from, to := filled(t), naive.New(naive.Options{Now: storetest.NewClock().Now})
	ids := []string{"acme", "globex", tenant.Operator}
	for _, id := range []string{"hooli", "initech", "umbrella"} {
		ids = append(ids, id)
		if err := storetest.Create(from, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	report, err := move.Run(context.Background(), storetest.ShortPages(from, 2), storetest.ShortPages(to, 2),
		move.Options{})
	if err != nil || report.Tenants != 5 {
		t.Fatalf("%+v, %v", report, err)
	}
	storetest.Compare(t, from, to, ids...)
	if err := storetest.Create(to, "zeta"); err != nil {
		t.Fatal(err)
	}
	if _, err := move.Run(context.Background(), from, storetest.ShortPages(to, 2), move.Options{}); !errors.Is(err,
		move.ErrDiffers) {
		t.Errorf("a tenant beyond the first page of the target, which the source does not have: %v", err)
	}
}

// otherTree is a tree of the same size with another root.
func otherTree(t tree.Tree) tree.Tree {
	var a tree.Appender
	a.Append(make([]tree.Hash, t.Size()), nil)
	return a.Tree()
}
