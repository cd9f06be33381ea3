package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// fullDisk has no space for new files under a directory while it is on.
func fullDisk(under string) *errorfs.Toggle {
	return &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, under) {
			return syscall.ENOSPC
		}
		return nil
	})}
}

// Given a full disk, when facts go on arriving, then they are recorded while there is room and refused as unavailable
// or busy after, nothing ends, reads go on; and when there is space again the store goes on by itself and has lost
// nothing.
func TestFullDiskRefusesAndRecovers(t *testing.T) {
	for _, under := range []string{"data/journal", "data/keys", "data/state"} {
		t.Run(under, func(t *testing.T) {
			unhung(t, under, func() error {
				full, clock := fullDisk(under), storetest.NewClock()
				o := tiny(errorfs.Wrap(vfs.NewMem(), full), clock.Now)
				o.CounterBytes, o.dirty, o.IndexBacklog = 2048, 6, 32
				o.Fatal = func(err error) { t.Errorf("a full disk ended the engine: %v", err) }
				e := mustOpen(t, o)
				if err := storetest.Create(e, "acme", lows()...); err != nil {
					return err
				}
				full.On()
				n, kept := 0, 0
				send := func() error {
					n++
					a := record(e, "acme", storetest.Fact(fmt.Sprint("f", n), "low", fmt.Sprint("c", n%40),
						storetest.Ago(0), "1"))
					if a.err == nil {
						kept++
					}
					return a.err
				}
				var err error
				for err == nil {
					err = send()
				}
				if !problem.Is(err, problem.Unavailable) && !problem.Is(err, problem.Busy) {
					return fmt.Errorf("refused with %w", err)
				}
				storetest.CheckLedger(t, e, "acme")
				full.Off()
				for send() != nil {
					_ = e.index.Flush() // asks for the next try now; the store itself waits some seconds
					runtime.Gosched()
				}
				for range 50 {
					for send() != nil {
						runtime.Gosched()
					}
				}
				if head := e.mustHead(t, "acme"); head != uint64(kept+1+len(lows())) {
					return fmt.Errorf("%d rows for %d facts that were answered", head, kept)
				}
				storetest.CheckLedger(t, e, "acme")
				return e.Close()
			})
		})
	}
}

func (e *Engine) mustHead(t *testing.T, id string) uint64 {
	t.Helper()
	b, err := e.book(id)
	if err != nil {
		t.Fatal(err)
	}
	return b.published.Load().head.Seq
}

// Given files that cannot be made, for whatever reason, then a refusal names that reason: a caller who is asked to free
// space while descriptors have run out looks in the wrong place.
func TestRefusalsNameTheirCause(t *testing.T) {
	words := map[error]string{
		syscall.ENOSPC: "free space", syscall.EDQUOT: "free space", syscall.EMFILE: "limit of open files",
		syscall.ENFILE: "limit of open files",
		syscall.EROFS:  "read-only", syscall.EACCES: "permissions", syscall.EPERM: "permissions",
		syscall.EIO: "the disk fails", syscall.EINVAL: "look at the data disk",
	}
	for cause, word := range words {
		for _, under := range []string{"data/journal", "data/keys"} {
			// one is enough of those that are tried again at leisure
			if under == "data/keys" && !errors.Is(cause, syscall.EMFILE) {
				continue
			}
			unhung(t, fmt.Sprint(under, " ", cause), func() error {
				broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, under) {
						return &fs.PathError{Op: "open", Path: op.Path, Err: cause}
					}
					return nil
				})}
				o := tiny(errorfs.Wrap(vfs.NewMem(), broken), storetest.NewClock().Now)
				o.IndexBacklog = 32
				e := mustOpen(t, o)
				if err := storetest.Create(e, "acme", lows()...); err != nil {
					return err
				}
				broken.On()
				var err error
				for n := 0; !errors.Is(err, cause); n++ { // before that the indexes may be behind by themselves
					runtime.Gosched()
					err = record(e, "acme", storetest.Fact(fmt.Sprint("f", n), "low", "c", storetest.Ago(0), "1")).err
				}
				var p *problem.Error
				if !errors.As(err, &p) || !strings.Contains(p.Detail, word) || !errors.Is(err, cause) ||
					p.RetryAfter == 0 {
					t.Errorf("%s, %v: refused with %v, want a word of %q", under, cause, err, word)
				}
				for other := range words {
					if words[other] != word && strings.Contains(p.Detail, words[other]) {
						t.Errorf("%s, %v: names another cause: %s", under, cause, p.Detail)
					}
				}
				broken.Off()
				return e.Close()
			})
		}
	}
}

// Given a disk that stays full, then closing does not wait for it, says that the derived files are behind, and the next
// start has everything.
func TestCloseDoesNotWaitForAFullDisk(t *testing.T) {
	for _, under := range []string{"data/journal", "data/keys", "data/state"} {
		t.Run(under, func(t *testing.T) {
			unhung(t, under, func() error {
				full, clock, mem := fullDisk(under), storetest.NewClock(), vfs.NewMem()
				o := tiny(errorfs.Wrap(mem, full), clock.Now)
				o.Fatal = func(err error) { t.Errorf("a full disk ended the engine: %v", err) }
				e := mustOpen(t, o)
				if err := storetest.Create(e, "acme", lows()...); err != nil {
					return err
				}
				full.On()
				rows := uint64(1 + len(lows()))
				for i := range 60 {
					if a := record(e, "acme", storetest.Fact(fmt.Sprint("f", i), "low", "c", storetest.Ago(0),
						"1")); a.err != nil {
						break
					}
					rows++
				}
				err := e.Close()
				if under != "data/journal" && !errors.Is(err, syscall.ENOSPC) {
					return fmt.Errorf("closing on a full disk: %v", err)
				}
				if under == "data/state" && !errors.Is(err, state.ErrGaveUp) {
					return fmt.Errorf("closing on a full disk: %v", err)
				}
				e = mustOpen(t, tiny(mem, clock.Now))
				if head := e.mustHead(t, "acme"); head != rows {
					return fmt.Errorf("%d rows after the restart, want %d", head, rows)
				}
				storetest.CheckLedger(t, e, "acme")
				return e.Close()
			})
		})
	}
}

// Given a sync of the journal's directory that fails beside the committer, then the engine ends like after any failed
// sync.
func TestFailedDirectorySyncEndsTheEngine(t *testing.T) {
	unhung(t, "directory sync", func() error {
		bad := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync && op.Path == "data/journal" {
				return syscall.EIO
			}
			return nil
		})}
		mem, clock := vfs.NewMem(), storetest.NewClock()
		o := tiny(errorfs.Wrap(mem, bad), clock.Now)
		ended := make(chan error, 8)
		o.Fatal = func(err error) { ended <- err }
		e := mustOpen(t, o)
		if err := storetest.Create(e, "acme", lows()...); err != nil {
			return err
		}
		bad.On()
		kept := 0
		var err error
		for err == nil || problem.Is(err, problem.Busy) {
			if err = record(e, "acme", storetest.Fact(fmt.Sprint("f", kept), "low", "c", storetest.Ago(0),
				"1")).err; err == nil {
				kept++
			}
		}
		if !problem.Is(err, problem.Unavailable) {
			return fmt.Errorf("refused with %w", err)
		}
		if err := <-ended; !errors.Is(err, syscall.EIO) || len(ended) != 0 {
			return fmt.Errorf("ended with %w, %d more", err, len(ended))
		}
		_ = e.Close() // says again what failed
		bad.Off()
		e = mustOpen(t, tiny(mem, clock.Now))
		if head := e.mustHead(t, "acme"); head < uint64(kept+1+len(lows())) {
			return fmt.Errorf("%d rows after the restart, %d facts were answered", head, kept)
		}
		return e.Close()
	})
}
