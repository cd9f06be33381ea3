package idempotency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
)

// world is a tenant whose meters are made under request keys.
type world struct {
	*testing.T
	store    store.Store
	requests *Requests
	registry *registry.Service
	now      time.Time
	seen     map[Outcome]int
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{T: t, now: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC), seen: map[Outcome]int{}}
	var mu sync.Mutex
	w.store = naive.New(naive.Options{Now: func() time.Time { return w.now }})
	o := Options{Store: w.store, Observe: func(o Outcome) {
		mu.Lock()
		defer mu.Unlock()
		w.seen[o]++
	}}
	for _, c := range change {
		c(&o)
	}
	var joined *Store
	w.requests, joined = New(o)
	w.registry = registry.New(joined, rand.Reader)
	alone := registry.New(w.store, rand.Reader)
	if _, _, err := alone.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: "acme"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func fingerprint(s string) [32]byte {
	return request.Fingerprint("POST", "/v1/meters", "", "", []byte(s))
}

// making is a handler that makes a meter and answers with its number of calls.
func (w *world) making(slug string, calls *int) Handler {
	return func(ctx context.Context) Made {
		*calls++
		_, err := w.registry.CreateMeter(ctx, "k", "acme", meter.Meter{Slug: slug, Aggregation: meter.Sum,
			Lateness: time.Hour, Future: time.Hour})
		if err != nil {
			status := 409
			if problem.Is(err, problem.Invalid) {
				status = 422
			}
			return Made{Answer: request.Answer{Status: status, Body: []byte(problem.CodeOf(err))}, Refusal: err}
		}
		return Made{Answer: request.Answer{Status: 201, Location: "/v1/meters/" + slug,
			Body: fmt.Appendf(nil, "call %d, secret", *calls)}, Public: fmt.Appendf(nil, "call %d", *calls)}
	}
}

func (w *world) do(key, body string, h Handler) (string, bool, error) {
	w.Helper()
	a, replayed, err := w.requests.Do(w.Context(), Call{Tenant: "acme", Key: key, Fingerprint: fingerprint(body),
		Actor: "k"}, h)
	return fmt.Sprint(a.Status, " ", string(a.Body)), replayed, err
}

func (w *world) want(what, got string, replayed bool, err error, want string, wantReplayed bool) {
	w.Helper()
	if err != nil || got != want || replayed != wantReplayed {
		w.Errorf("%s: %q, replayed %v, %v; want %q, %v", what, got, replayed, err, want, wantReplayed)
	}
}

func (w *world) meters() (n int) {
	w.Helper()
	err := w.store.View(w.Context(), "acme", func(v store.View) error {
		ms, err := store.Meters(v, store.Page{Limit: 1000})
		n = len(ms)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func TestTheSameRequestIsAnsweredOnce(t *testing.T) {
	w := newWorld(t)
	calls := 0
	got, replayed, err := w.do("a", "x", w.making("m", &calls))
	w.want("first", got, replayed, err, "201 call 1, secret", false)
	for range 3 {
		got, replayed, err = w.do("a", "x", w.making("m", &calls))
		w.want("again", got, replayed, err, "201 call 1", true)
	}
	if _, _, err := w.do("a", "y", w.making("other", &calls)); !problem.Is(err, problem.KeyReused) {
		t.Errorf("another request: %v", err)
	}
	if w.meters() != 1 || calls != 1 {
		t.Errorf("%d meters, handled %d times", w.meters(), calls)
	}
	if w.seen[First] != 1 || w.seen[Replayed] != 3 || w.seen[Reused] != 1 {
		t.Errorf("seen %v", w.seen)
	}
}

func TestAKeyIsNewAgainWhenItHasExpired(t *testing.T) {
	w := newWorld(t)
	calls := 0
	w.do("a", "x", w.making("m", &calls)) //nolint:errcheck // the first of two
	w.now = w.now.Add(DefaultKeep - time.Microsecond)
	_, replayed, err := w.do("a", "x", w.making("m", &calls))
	if err != nil || !replayed {
		t.Errorf("just before: %v, %v", replayed, err)
	}
	w.now = w.now.Add(time.Microsecond)
	got, replayed, err := w.do("a", "y", w.making("n", &calls))
	w.want("after", got, replayed, err, "201 call 2, secret", false)
}

func TestARefusalByTheEffectIsKeptAndOneBeforeItIsNot(t *testing.T) {
	w := newWorld(t)
	calls := 0
	w.do("a", "x", w.making("m", &calls)) //nolint:errcheck // makes the meter
	got, replayed, err := w.do("b", "x", w.making("m", &calls))
	w.want("it exists", got, replayed, err, "409 already_exists", false)
	got, replayed, err = w.do("b", "x", w.making("m", &calls))
	w.want("again", got, replayed, err, "409 already_exists", true)
	for range 2 {
		got, replayed, err = w.do("c", "x", w.making("BAD slug", &calls))
		w.want("bad shape", got, replayed, err, "422 invalid", false)
	}
	got, replayed, err = w.do("c", "x", w.making("good", &calls))
	w.want("the key was not spent", got, replayed, err, fmt.Sprintf("201 call %d, secret", calls), false)
}

func TestAnEffectThatFailsHalfWayLeavesNothing(t *testing.T) {
	w := newWorld(t)
	_, joined := New(Options{Store: w.store})
	half := func(ctx context.Context) Made {
		err := joined.Update(ctx, "acme", func(store.Tx) error {
			if _, err := registry.New(joined, rand.Reader).CreateMeter(ctx, "k", "acme",
				meter.Meter{Slug: "half", Aggregation: meter.Sum}); err != nil {
				return err
			}
			return problem.New(problem.Conflict, "no")
		})
		return Made{Answer: request.Answer{Status: 409}, Refusal: err}
	}
	got, replayed, err := w.do("a", "x", half)
	w.want("half", got, replayed, err, "409 ", false)
	got, replayed, err = w.do("a", "x", half)
	w.want("again", got, replayed, err, "409 ", true)
	if w.meters() != 0 {
		t.Error("half an effect was committed")
	}
}

// lossy commits and then says that it did not, as a server that dies before it can answer.
type lossy struct {
	store.Store
	lose int
}

var errLost = errors.New("the answer was lost")

func (l *lossy) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	err := l.Store.Update(ctx, id, fn)
	if l.lose--; err == nil && l.lose == 0 {
		return errLost
	}
	return err
}

func TestAnAnswerThatWasLostIsGivenToTheRetry(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Store = &lossy{o.Store, 1} })
	calls := 0
	if _, _, err := w.do("a", "x", w.making("m", &calls)); !errors.Is(err, errLost) {
		t.Fatalf("got %v", err)
	}
	got, replayed, err := w.do("a", "x", w.making("m", &calls))
	w.want("retry", got, replayed, err, "201 call 1", true)
}

func TestAPanicIsAnErrorAndKeepsNothing(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.do("a", "x", func(context.Context) Made { panic("boom") })
	var panicked *store.PanicError
	if !problem.Is(err, problem.Internal) || !errors.As(err, &panicked) || panicked.Value != "boom" {
		t.Errorf("a handler that panics: %v, want an internal error that says with what", err)
	}
	if !strings.Contains(err.Error(), "idempotency_test.go") {
		t.Errorf("the error does not say where the panic came from: %v", err)
	}
	calls := 0
	got, replayed, err := w.do("a", "x", w.making("m", &calls))
	w.want("after it", got, replayed, err, "201 call 1, secret", false)
}

func TestTheSecondWaitsForTheFirst(t *testing.T) {
	w := newWorld(t)
	started, release := make(chan struct{}), make(chan struct{})
	calls := 0
	slow := func(ctx context.Context) Made {
		close(started)
		<-release
		return w.making("m", &calls)(ctx)
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.do("a", "x", slow) }) //nolint:errcheck // seen by the second
	<-started
	wg.Go(func() {
		got, replayed, err := w.do("a", "x", w.making("m", &calls))
		w.want("second", got, replayed, err, "201 call 1", true)
	})
	close(release)
	wg.Wait()
}

func TestTheSecondDoesNotWaitForEver(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Patience = time.Millisecond })
	started, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		w.do("a", "x", func(context.Context) Made { //nolint:errcheck // only holds the key
			close(started)
			<-release
			return Made{Answer: request.Answer{Status: 204}}
		})
	})
	<-started
	_, _, err := w.do("a", "x", nil)
	if !problem.Is(err, problem.KeyInUse) || w.seen[InUse] != 1 {
		t.Errorf("got %v, seen %v", err, w.seen)
	}
	close(release)
	wg.Wait()
}

// Two nodes know nothing of one another's running requests: the store decides.
func TestManyNodesAtOnceHaveOneEffect(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 4 {
		requests, joined := New(Options{Store: w.store})
		reg := registry.New(joined, rand.Reader)
		for range 8 {
			wg.Go(func() {
				a, replayed, err := requests.Do(t.Context(),
					Call{Tenant: "acme", Key: "a", Fingerprint: fingerprint("x")}, func(ctx context.Context) Made {
						m, err := reg.CreateMeter(ctx, "k", "acme", meter.Meter{Slug: "m", Aggregation: meter.Sum})
						return Made{Answer: request.Answer{Status: 201, Body: []byte(m.Slug)}, Refusal: err}
					})
				mu.Lock()
				defer mu.Unlock()
				answers[fmt.Sprint(a.Status, string(a.Body), replayed, err)]++
			})
		}
	}
	wg.Wait()
	if len(answers) != 2 || answers["201mfalse <nil>"] != 1 || answers["201mtrue <nil>"] != 31 {
		t.Errorf("answers %v", answers)
	}
}

// between is a store of one node. Before its next update begins, something happens elsewhere.
type between struct {
	store.Store
	happens func()
}

func (b *between) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if happens := b.happens; happens != nil {
		b.happens = nil
		happens()
	}
	return b.Store.Update(ctx, id, fn)
}

// node is another process on the world's store, and what happens before its next update.
func (w *world) node(happens func()) (*Requests, *registry.Service) {
	requests, joined := New(Options{Store: &between{w.store, happens}})
	return requests, registry.New(joined, rand.Reader)
}

// Given a request that found nothing kept, when another node answers the same request before its transaction begins,
// then it finds that answer inside the transaction, and there is one effect.
func TestAnotherNodeIsFasterAfterTheLook(t *testing.T) {
	w := newWorld(t)
	calls := 0
	var faster string
	slow, reg := w.node(func() { faster, _, _ = w.do("a", "x", w.making("m", &calls)) })
	c := Call{Tenant: "acme", Key: "a", Fingerprint: fingerprint("x")}
	a, replayed, err := slow.Do(t.Context(), c, func(ctx context.Context) Made {
		m, err := reg.CreateMeter(ctx, "k", "acme", meter.Meter{Slug: "second", Aggregation: meter.Sum})
		return Made{Answer: request.Answer{Status: 201, Body: []byte(m.Slug)}, Refusal: err}
	})
	if err != nil || !replayed || string(a.Body) != "call 1" || faster != "201 call 1, secret" {
		t.Errorf("%s, replayed %v, %v; the faster node answered %s", a.Body, replayed, err, faster)
	}
	if w.meters() != 1 {
		t.Errorf("%d effects", w.meters())
	}
}

// Given a refusal by the effect, when another node has an effect and keeps its answer before the refusal is kept, then
// that answer stays.
func TestARefusalDoesNotReplaceAnAnswer(t *testing.T) {
	w := newWorld(t)
	calls := 0
	if _, _, err := w.do("other", "y", w.making("taken", &calls)); err != nil {
		t.Fatal(err)
	}
	store := &between{Store: w.store}
	slow, joined := New(Options{Store: store})
	reg := registry.New(joined, rand.Reader)
	a, replayed, err := slow.Do(t.Context(), Call{Tenant: "acme", Key: "a", Fingerprint: fingerprint("x")},
		func(ctx context.Context) Made {
			_, err := reg.CreateMeter(ctx, "k", "acme", meter.Meter{Slug: "taken", Aggregation: meter.Sum})
			store.happens = func() {
				if _, _, err := w.do("a", "x", w.making("m", &calls)); err != nil {
					t.Error(err)
				}
			}
			return Made{Answer: request.Answer{Status: 409}, Refusal: err}
		})
	if err != nil || !replayed || string(a.Body) != "call 2" {
		t.Errorf("%d %s, replayed %v, %v", a.Status, a.Body, replayed, err)
	}
	again, replayed, err := w.do("a", "x", w.making("m", &calls))
	w.want("again", again, replayed, err, "201 call 2", true)
}

// Given the operator's key of a request, when two nodes make two tenants under it at once, then one of them is refused.
func TestTwoNodesTakeOneKeyForTwoLedgers(t *testing.T) {
	w := newWorld(t)
	if err := w.registry.FoundOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := func(requests *Requests, reg *registry.Service, id string) error {
		c := Call{Tenant: tenant.Operator, Key: "a", Fingerprint: fingerprint(id), Effect: id}
		_, _, err := requests.Do(t.Context(), c, func(ctx context.Context) Made {
			_, _, err := reg.CreateTenant(ctx, "operator", tenant.Tenant{ID: id})
			return Made{Answer: request.Answer{Status: 201}, Refusal: err}
		})
		return err
	}
	var faster error
	slow, reg := w.node(func() { faster = found(w.requests, w.registry, "bolt") })
	if err := found(slow, reg, "cord"); faster != nil || !problem.Is(err, problem.KeyReused) {
		t.Errorf("the faster was answered %v, the other %v", faster, err)
	}
	if _, err := w.registry.Tenant(t.Context(), "cord"); !problem.Is(err, problem.NotFound) {
		t.Errorf("the second effect happened: %v", err)
	}
}

func TestAnEffectInAnotherLedger(t *testing.T) {
	w := newWorld(t)
	if err := w.registry.FoundOperator(t.Context()); err != nil {
		t.Fatal(err)
	}
	made := 0
	create := func(id, key string) (string, bool, error) {
		foreseen, err := w.registry.Foresee(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, replayed, err := w.requests.Do(foreseen, Call{Tenant: tenant.Operator, Key: key,
			Fingerprint: fingerprint(id), Effect: id}, func(ctx context.Context) Made {
			made++
			_, _, err := w.registry.CreateTenant(ctx, "operator", tenant.Tenant{ID: id})
			if err != nil {
				return Made{Answer: request.Answer{Status: 409}, Refusal: err}
			}
			return Made{Answer: request.Answer{Status: 201, Body: []byte(id)}}
		})
		return fmt.Sprint(a.Status, " ", string(a.Body)), replayed, err
	}
	got, replayed, err := create("bolt", "a")
	w.want("first", got, replayed, err, "201 bolt", false)
	got, replayed, err = create("bolt", "a")
	w.want("again", got, replayed, err, "201 bolt", true)
	if _, _, err := create("other", "a"); !problem.Is(err, problem.KeyReused) {
		t.Errorf("another tenant under the same key: %v", err)
	}
	got, replayed, err = create("bolt", "b")
	w.want("it exists", got, replayed, err, "409 ", false)
	got, replayed, err = create("bolt", "b")
	w.want("again", got, replayed, err, "409 ", true)
	if made != 2 {
		t.Errorf("handled %d times", made)
	}
	// A first that died between the reservation and the effect is handled by the second.
	crashed := &Requests{store: &Store{Store: &lossy{w.store, 1}}, o: w.requests.o, running: map[place]chan struct{}{}}
	c := Call{Tenant: tenant.Operator, Key: "c", Fingerprint: fingerprint("late"), Effect: "late"}
	if _, _, err := crashed.Do(t.Context(), c, nil); !errors.Is(err, errLost) {
		t.Fatalf("got %v", err)
	}
	got, replayed, err = create("late", "c")
	w.want("after the crash", got, replayed, err, "201 late", false)
}

func TestARequestReachesOneLedger(t *testing.T) {
	w := newWorld(t)
	_, joined := New(Options{Store: w.store})
	_, _, err := w.do("a", "x", func(ctx context.Context) Made {
		err := joined.View(ctx, "bolt", func(store.View) error { return nil })
		if !errors.Is(err, errOther) || !errors.Is(joined.Update(ctx, "bolt", nil), errOther) {
			t.Errorf("another ledger was reached: %v", err)
		}
		return Made{Answer: request.Answer{Status: 200}}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestATenantMayKeepOnlySoMany(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Admit = func(string) (time.Duration, bool) {
			return 3 * time.Second,
				false
		}
	})
	calls := 0
	_, _, err := w.do("a", "x", w.making("m", &calls))
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != problem.RateLimited || p.RetryAfter != 3*time.Second || calls != 0 ||
		!strings.Contains(p.Detail, "requests.keys_per_second") {
		t.Errorf("got %v after %d calls", err, calls)
	}
}
