package followlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

const dir = "data/followers"

func failNow(t interface{ Fatal(...any) }) func(error) {
	return func(err error) { t.Fatal("the log ended the process: ", err) }
}

func mustOpen(t interface {
	Fatal(...any)
	Helper()
}, fs vfs.FS) (*Log, map[key]store.Following) {
	t.Helper()
	if err := errors.Join(fs.MkdirAll("data", 0o755), syncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	l, kept, err := Open(fs, dir, failNow(t))
	if err != nil {
		t.Fatal(err)
	}
	out := map[key]store.Following{}
	for _, f := range kept {
		out[key{f.Tenant, f.Follower}] = f
	}
	return l, out
}

func same(a, b map[key]store.Following) bool {
	return maps.EqualFunc(a, b, func(a, b store.Following) bool {
		return a.Tenant == b.Tenant && a.Follower == b.Follower && a.Position == b.Position &&
			a.Due == b.Due && a.Failing == b.Failing &&
			string(a.Note) == string(b.Note)
	})
}

// Given any history of places that are put and taken away, when the machine stops at any moment, then the log holds
// what was answered, and of what was under way all or nothing.
func TestPowerFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewCrashableMem()
		l, _ := mustOpen(t, fs)
		l.renewAt = 400 // so that it is made anew often
		want := map[key]store.Following{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f := store.Following{Tenant: rapid.SampledFrom([]string{"a", "b", "tFol"}).Draw(t, "tenant"),
				Follower: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "follower")}
			before := maps.Clone(want)
			if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
				if err := l.Delete(f.Tenant, f.Follower); err != nil {
					t.Fatal(err)
				}
				delete(want, key{f.Tenant, f.Follower})
			} else {
				f.Position = rapid.Uint64().Draw(t, "position")
				f.Due = calendar.Micros(rapid.Int64().Draw(t, "due"))
				f.Failing = rapid.Bool().Draw(t, "failing")
				f.Note = []byte(rapid.StringN(0, 40, -1).Draw(t, "note"))
				if err := l.Put(f); err != nil {
					t.Fatal(err)
				}
				want[key{f.Tenant, f.Follower}] = f
			}
			if rapid.IntRange(0, 4).Draw(t, "crash") > 0 {
				continue
			}
			// What is not synced is lost in part. The last group was synced, so that all of it must be there.
			seed := rapid.Uint64().Draw(t, "seed")
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, 0))})
			var got map[key]store.Following
			if l, got = mustOpen(t, fs); !same(got, want) {
				t.Fatalf("after the crash %v, want %v, before %v", got, want, before)
			}
			l.renewAt = 400
		}
	})
}

// A group that was torn when the machine stopped was never answered: it is as if it had not been written, wherever it
// is cut, and the next one takes its place.
func TestATornGroupIsCut(t *testing.T) {
	fs := vfs.NewMem()
	l, _ := mustOpen(t, fs)
	put(t, l, "a", 1, "kept")
	whole := contents(t, fs)
	put(t, l, "a", 2, strings.Repeat("torn tFol ", 10))
	all := contents(t, fs)
	for cut := len(whole) + 1; cut < len(all); cut++ {
		for _, rest := range []string{"", "\x00\x00\x00\x00", strings.Repeat("\x00", 30)} {
			rewrite(t, fs, append(slices.Clone(all[:cut]), rest...))
			l, got := mustOpen(t, fs)
			if f := got[key{"a", "sink"}]; len(got) != 1 || f.Position != 1 || string(f.Note) != "kept" {
				t.Fatalf("cut at %d: %v", cut, got)
			}
			put(t, l, "a", 3, "next")
			if _, got = mustOpen(t, fs); got[key{"a", "sink"}].Position != 3 {
				t.Fatalf("cut at %d, written over: %v", cut, got)
			}
		}
	}
}

// Each byte of a group that others follow is guarded: a flipped one is named, and never read over.
func TestDamageIsNamed(t *testing.T) {
	fs := vfs.NewMem()
	l, _ := mustOpen(t, fs)
	for i := range 3 {
		put(t, l, "a", uint64(i), "note")
	}
	all := contents(t, fs)
	_, last := group(all[len(magic)+1:])
	for at := range len(all) - last {
		bad := slices.Clone(all)
		bad[at] ^= 0x40
		rewrite(t, fs, bad)
		_, _, err := Open(fs, dir, failNow(t))
		if err == nil || at != len(magic) && !errors.Is(err, errDamaged) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
	}
	newer := slices.Clone(all)
	newer[len(magic)] = version + 1
	rewrite(t, fs, newer)
	if _, _, err := Open(fs, dir, failNow(t)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Fatalf("a newer format: %v", err)
	}
}

func TestOneSyncServesManyWriters(t *testing.T) {
	fs := vfs.NewMem()
	syncs := 0
	held, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	counting := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileSyncData {
			return nil
		}
		mu.Lock()
		syncs++
		first := syncs == 1
		mu.Unlock()
		if first {
			close(held)
			<-release
		}
		return nil
	}))
	l, _ := mustOpen(t, counting)
	put(t, l, "made", 1, "") // makes the file
	var writers sync.WaitGroup
	write := func(i int) {
		writers.Go(func() {
			if err := l.Put(store.Following{Tenant: fmt.Sprint(i), Follower: "sink"}); err != nil {
				t.Error(err)
			}
		})
	}
	write(0)
	<-held
	for i := 1; i <= 20; i++ {
		write(i)
	}
	for l.waiting() < 20 {
		continue
	}
	close(release)
	writers.Wait()
	if syncs != 2 {
		t.Errorf("%d syncs for 21 writers", syncs)
	}
	if _, got := mustOpen(t, fs); len(got) != 22 {
		t.Errorf("%d are kept", len(got))
	}
}

// waiting is how many records wait to be written.
func (l *Log) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := l.pending; len(b) > 0; n++ {
		length, size := binary.Uvarint(b)
		b = b[size+int(length):]
	}
	return n
}

// A full disk is answered and may be tried again. A sync that fails ends the process.
func TestFullDisk(t *testing.T) {
	fs, full := vfs.NewMem(), false
	var failing errorfs.OpKind
	faulty := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full && op.Kind == failing {
			return errors.New("no space left on device")
		}
		return nil
	}))
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	var ended error
	l, _, err := Open(faulty, dir, func(err error) { ended = err })
	if err != nil {
		t.Fatal(err)
	}
	f := store.Following{Tenant: "a", Follower: "sink", Standing: store.Standing{Position: 1}}
	for _, failing = range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWriteAt} {
		full = true
		if err := l.Put(f); !problem.Is(err, problem.Unavailable) || ended != nil {
			t.Fatalf("%v: %v, ended %v", failing, err, ended)
		}
		full = false
		f.Position++
		if err := l.Put(f); err != nil {
			t.Fatal(err)
		}
		if _, got := mustOpen(t, fs); got[key{"a", "sink"}].Position != f.Position {
			t.Fatalf("%v: %v", failing, got)
		}
	}
	full, failing = true, errorfs.OpFileSyncData
	if err := l.Put(f); err == nil || ended == nil {
		t.Fatalf("after a failed sync: %v, ended %v", err, ended)
	}
	full = false
	if err := l.Put(f); err == nil {
		t.Fatal("it goes on after a failed sync")
	}
}

func put(t *testing.T, l *Log, tenant string, position uint64, note string) {
	t.Helper()
	err := l.Put(store.Following{Tenant: tenant, Follower: "sink",
		Standing: store.Standing{Position: position, Note: []byte(note)}})
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, fs *vfs.MemFS) []byte {
	t.Helper()
	f, err := fs.Open(dir + "/" + logName)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func rewrite(t *testing.T, fs *vfs.MemFS, b []byte) {
	t.Helper()
	f, err := fs.Create(dir+"/"+logName, "followers")
	if err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}

// FuzzRead reads any bytes as a log: it is refused, or what it holds is written and read again the same.
func FuzzRead(f *testing.F) {
	one := appendRecord(nil, opPut, &store.Following{Tenant: "a", Follower: "b",
		Standing: store.Standing{Position: 7, Due: -1, Failing: true, Note: []byte("n")}})
	two := appendRecord(one, opDelete, &store.Following{Tenant: "a", Follower: "b"})
	f.Add(sealed(append([]byte(magic), version), two))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &Log{live: map[key]store.Following{}, fs: vfs.NewMem()}
		if l.readAll(b) != nil {
			return
		}
		var records []byte
		for _, f := range l.live {
			records = appendRecord(records, opPut, &f)
		}
		again := &Log{live: map[key]store.Following{}, fs: vfs.NewMem()}
		err := again.readAll(sealed(append([]byte(magic), version), records))
		if err != nil || !same(l.live, again.live) {
			t.Fatalf("%v became %v: %v", l.live, again.live, err)
		}
	})
}
