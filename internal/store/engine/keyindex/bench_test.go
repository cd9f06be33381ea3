package keyindex

import (
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// benchKeys adds a size to the benchmarks: -args -keys 100000000 needs 3 GB of disk.
var benchKeys = flag.Int("keys", 0, "also run the benchmarks with this many known keys")

const benchBatch = 1000

// cpuTime is what the process has used of all cores, background work and kernel
// included: on a shared machine it says more than the clock on the wall.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchSizes() []int {
	sizes := []int{1_000_000, 10_000_000}
	if *benchKeys > 0 {
		sizes = append(sizes, *benchKeys)
	}
	return sizes
}

// feeder is the owner of an index in a benchmark: it does what the committer does
// for every batch, in one goroutine.
type feeder struct {
	x    *Index
	next uint64
	keys []Hash
	out  []Found
}

func (f *feeder) batch(b *testing.B) {
	for i := range f.keys {
		f.keys[i] = hashOf(f.next + uint64(i))
	}
	at, err := f.x.Probe(f.keys, f.out)
	if err != nil {
		b.Fatal(err)
	}
	for i, h := range f.keys {
		found, err := f.x.Lookup(h, f.out[i], at)
		if err != nil || found.OK {
			b.Fatalf("key %d: %v %v", f.next, found, err)
		}
		f.x.Insert(Entry{Hash: h, Check: uint32(f.next), Seq: f.next})
		f.next++
	}
	if f.x.Full() {
		m := Mark{Segment: 1, Offset: uint32(f.next)}
		f.x.Freeze(m)
		f.x.Durable(m)
	}
}

func filledIndex(b *testing.B, known int) *feeder {
	x, err := Open(Options{FS: vfs.Default, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	f := &feeder{x: x, keys: make([]Hash, benchBatch), out: make([]Found, benchBatch)}
	for f.next < uint64(known) {
		f.batch(b)
		if x.Backlog() > 2 {
			if err := x.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := x.settle(); err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkNewKey is probe, lookup and insert of keys never seen, with flushes and
// merges under way; -cpu 1 puts them on the same core. Waiting for the merges at the
// end belongs to the cost.
func BenchmarkNewKey(b *testing.B) {
	for _, known := range benchSizes() {
		b.Run(fmt.Sprintf("known=%d", known), func(b *testing.B) {
			f := filledIndex(b, known)
			b.ResetTimer()
			cpu := cpuTime(b)
			for range b.N {
				f.batch(b)
			}
			if err := f.x.settle(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			cpu = cpuTime(b) - cpu
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*benchBatch), "cpu-ns/key")
			s := f.x.Stats()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchBatch), "ns/key")
			b.ReportMetric(float64(s.DiskBytes)/float64(max(1, s.Entries)), "disk-B/key")
			b.ReportMetric(float64(s.FilterMemory)/1e6, "filter-MB")
			b.ReportMetric(float64(s.Runs), "files")
			b.ReportMetric(float64(s.Layers), "layers")
			if err := f.x.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkProbe is what a key costs the prepare stage: never seen, and seen long ago.
func BenchmarkProbe(b *testing.B) {
	for _, known := range benchSizes() {
		f := filledIndex(b, known)
		run := func(name string, key func(i uint64) uint64) {
			b.Run(fmt.Sprintf("known=%d/%s", known, name), func(b *testing.B) {
				var n uint64
				cpu := cpuTime(b)
				for range b.N {
					for i := range f.keys {
						f.keys[i] = hashOf(key(n))
						n++
					}
					if _, err := f.x.Probe(f.keys, f.out); err != nil {
						b.Fatal(err)
					}
				}
				cpu = cpuTime(b) - cpu
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*benchBatch), "cpu-ns/key")
			})
		}
		run("absent", func(i uint64) uint64 { return 1<<40 + i })
		run("present", func(i uint64) uint64 { return i * 7919 % uint64(known*9/10) })
		if err := f.x.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is the part of a start that this package answers for.
func BenchmarkOpen(b *testing.B) {
	for _, known := range benchSizes() {
		f := filledIndex(b, known)
		o := f.x.opts
		if err := f.x.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("known=%d", known), func(b *testing.B) {
			for range b.N {
				x, err := Open(o)
				if err != nil {
					b.Fatal(err)
				}
				if err := x.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
