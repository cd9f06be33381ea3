package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// patience is how long a story may take before it counts as hung: far more than any takes on any machine.
const patience = 2 * time.Minute

// unhung runs f and fails with all goroutines when it does not come back.
func unhung(t *testing.T, what string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-timer.C:
		buf := make([]byte, 1<<20)
		t.Fatalf("%s hangs:\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// disk fails one operation that changes a file under a directory.
type disk struct {
	*vfs.MemFS
	under string
	at    int64
	fault error
	ops   atomic.Int64
	hit   atomic.Pointer[string]
}

func (d *disk) files() vfs.FS {
	return errorfs.Wrap(d.MemFS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasPrefix(op.Path, d.under) || op.Kind.ReadOrWrite() == errorfs.OpIsRead ||
			op.Kind == errorfs.OpLock {
			return nil
		}
		if d.ops.Add(1)-1 != d.at {
			return nil
		}
		name := fmt.Sprintf("operation %d of kind %d on %s", d.at, op.Kind, op.Path)
		d.hit.Store(&name)
		return d.fault
	}))
}

// Given a disk that fails any one operation, when facts are sent, then each is answered with a verdict or refused as
// unavailable; a store that cannot go on says so once and refuses everything from then on; and the next start has every
// fact that was answered, once, whatever is sent again.
func TestDiskFailsAtEveryOperation(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		for _, under := range []string{"data/journal", "data/keys", "data/state"} {
			t.Run(fmt.Sprintf("%v/%s", fault, under), func(t *testing.T) {
				t.Parallel()
				failed, fatal := 0, 0
				for at := int64(0); ; at += int64(faultStride) {
					d := &disk{MemFS: vfs.NewCrashableMem(), under: under, at: at, fault: fault}
					s := &faultStory{disk: d, log: &diary{}, clock: storetest.NewClock()}
					unhung(t, fmt.Sprintf("with %v at operation %d under %s", fault, at, under), s.play)
					if d.hit.Load() == nil {
						break
					}
					failed++
					if s.fatal != nil {
						fatal++
					}
				}
				t.Logf("%d operations failed, %d of them ended the engine", failed, fatal)
				if failed < 20/faultStride {
					t.Errorf("only %d operations could fail", failed)
				}
				if under == "data/journal" && fatal == 0 {
					t.Error("no failure of the journal ended the engine")
				}
			})
		}
	}
}

// faultStory is one store on a bad disk.
type faultStory struct {
	disk  *disk
	log   *diary
	clock *storetest.Clock

	mu    sync.Mutex // guards fatal and calls
	fatal error
	calls int
}

func (s *faultStory) ended(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fatal = err
	s.calls++
}

func (s *faultStory) failure() (calls int, fatal error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.fatal
}

func (s *faultStory) play() error {
	o := tiny(s.disk.files(), s.clock.Now)
	o.Fatal = s.ended
	e, err := Open(o)
	switch {
	case err == nil:
		if err := s.write(e); err != nil {
			return errors.Join(err, e.Close())
		}
		closed := e.Close()
		if _, failed := s.failure(); closed != nil && failed == nil && !errors.Is(closed, s.disk.fault) {
			return fmt.Errorf("close: %w", closed)
		}
	case !errors.Is(err, s.disk.fault):
		return fmt.Errorf("open says nothing of the fault: %w", err)
	}
	for _, survives := range []int{0, 100} {
		after := s.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: survives, RNG: rand.New(rand.NewPCG(1, 1))})
		if err := s.startAgain(after); err != nil {
			return fmt.Errorf("%s: the next start: %w", *s.disk.hit.Load(), err)
		}
	}
	return nil
}

// write sends facts and checks that every refusal is one that promises nothing was changed.
func (s *faultStory) write(e *Engine) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, id := range crashTenants {
		err := storetest.Create(e, id, crashMeters()...)
		if err := s.allowed(err); err != nil {
			return fmt.Errorf("create %s: %w", id, err)
		}
	}
	for i := range 14 {
		b := sentBatch{tenant: crashTenants[i%2]}
		for j := range 3 {
			id := fmt.Sprint("f", i, "-", j)
			b.own = append(b.own, id)
			b.events = append(b.events, storetest.Fact(id, "calls", "c", storetest.Ago(0), "1"))
		}
		if i > 2 {
			b.events = append(b.events, storetest.Fact(fmt.Sprint("f", i-2, "-0"), "calls", "c", storetest.Ago(0), "1"))
		}
		s.log.sent = append(s.log.sent, b)
		vs, err := e.Record(ctx, store.Batch{Tenant: b.tenant, Events: append([]usage.Event(nil), b.events...)})
		if problem.Is(err, problem.NotFound) {
			continue // its tenant could not be created
		}
		if err := s.allowed(err); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		for j, v := range vs {
			if v.Status == usage.Rejected {
				if err := s.allowed(v.Problem); err != nil {
					return fmt.Errorf("verdict: %w", err)
				}
				continue
			}
			s.log.note(note{tenant: b.tenant, id: b.events[j].ID, seq: v.Seq})
		}
	}
	return s.refuses(e)
}

// allowed passes success and refusals of the 503 kind.
func (s *faultStory) allowed(err error) error {
	if err == nil || problem.Is(err, problem.Unavailable) || problem.Is(err, problem.Busy) {
		return nil
	}
	return err
}

// refuses checks that an engine that has ended refuses everything, and said so once.
func (s *faultStory) refuses(e *Engine) error {
	calls, failed := s.failure()
	if failed == nil {
		return nil
	}
	if calls != 1 || !errors.Is(failed, s.disk.fault) && !strings.Contains(failed.Error(), s.disk.fault.Error()) {
		return fmt.Errorf("%s: Fatal was called %d times, the last with %w", *s.disk.hit.Load(), calls, failed)
	}
	ctx := context.Background()
	_, recorded := e.Record(ctx, store.Batch{Tenant: crashTenants[0],
		Events: []usage.Event{storetest.Fact("x", "calls", "c", storetest.Ago(0), "1")}})
	updated := e.Update(ctx, crashTenants[0], func(store.Tx) error { return nil })
	viewed := e.View(ctx, crashTenants[0], func(store.View) error { return nil })
	for i, err := range []error{recorded, updated, viewed, e.Ready(ctx)} {
		if !problem.Is(err, problem.Unavailable) {
			return fmt.Errorf("call %d after the end: %v, want unavailable", i, err)
		}
	}
	return nil
}

// startAgain opens what is there after the fault is gone, holds it against the diary and sends everything again.
func (s *faultStory) startAgain(fs *vfs.MemFS) error {
	p := crashPoint{fs: fs, log: s.log}
	got, err := (&lab{clock: s.clock}).recover(p)
	if err != nil {
		return err
	}
	return s.log.holds(got, s.log.answered())
}
