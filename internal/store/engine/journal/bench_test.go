package journal

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkAppendSync is a commit as the committer does it, on the disk under the temporary directory.
//
//	ready   into a segment that is ready, with nothing else going on: what a commit waits for at a moderate rate
//	steady  as fast as it goes, with the preparer writing a zero for every byte beside it
//	grown   the approach the essay rejects, for comparison: the same writes and syncs at the end of a growing file
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("ready/%dK", size>>10), func(b *testing.B) { benchmarkAppend(b, size, true) })
		b.Run(fmt.Sprintf("steady/%dK", size>>10), func(b *testing.B) { benchmarkAppend(b, size, false) })
		b.Run(fmt.Sprintf("grown/%dK", size>>10), func(b *testing.B) {
			f, err := vfs.Default.Create(b.TempDir()+"/grown", vfs.WriteCategoryUnspecified)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			record := payloadOf(0, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := f.Write(record); err != nil {
					b.Fatal(err)
				}
				if err := f.SyncData(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchmarkAppend(b *testing.B, size int, quiet bool) {
	j, err := Open(Options{FS: vfs.Default, Dir: b.TempDir() + "/journal", StoreID: testStore})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	if err := j.Recover(Position{}, Position{}, func(_, _ Position, _ []byte) error { return nil }); err != nil {
		b.Fatal(err)
	}
	settled(j)
	record := payloadOf(0, size)
	commit := func() {
		if err := j.Reserve(size - HeaderSize); err != nil {
			b.Fatal(err)
		}
		if _, _, err := j.AppendRecord(record); err != nil {
			b.Fatal(err)
		}
		if err := j.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if quiet && int(j.End().Offset)+size > DefaultSegmentBytes {
			b.StopTimer()
			commit()
			settled(j)
			b.StartTimer()
		}
		commit()
	}
}

// BenchmarkScan is replay from the page cache.
func BenchmarkScan(b *testing.B) {
	j, err := Open(Options{FS: vfs.Default, Dir: b.TempDir() + "/journal", StoreID: testStore, SegmentBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	if err := j.Recover(Position{}, Position{}, func(_, _ Position, _ []byte) error { return nil }); err != nil {
		b.Fatal(err)
	}
	record := payloadOf(0, 40<<10)
	for range 1000 {
		if _, _, err := j.AppendRecord(record); err != nil {
			b.Fatal(err)
		}
		if err := j.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(j.Size())
	for b.Loop() {
		if err := j.Scan(Position{}, j.End(), func(_, _ Position, _ []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
