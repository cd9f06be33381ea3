package keyindex

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What decodes as a manifest is written back as the same bytes.
func FuzzManifest(f *testing.F) {
	empty := manifest{Partitions: defaultPartitions, Next: 1}
	f.Add(empty.encode())
	full := manifest{StoreID: testStore, Seed: 9, Partitions: 64, Next: 7, Mark: Mark{1, 2},
		Runs: []runMeta{{Number: 3, Width: 64, Count: 5},
			{Number: 6, Tier: 1, Lo: 16, Width: 16, Count: 9, FooterCRC: 4}}}
	f.Add(full.encode())
	f.Add([]byte(manifestMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, withCRC(b)} {
			m, err := decodeManifest("m", b)
			if err == nil && !bytes.Equal(m.encode(), b) {
				t.Fatalf("%x reads as %+v", b, m)
			}
		}
	})
}

// withCRC repairs the last four bytes, so that the fuzzer gets past them.
func withCRC(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	return binary.LittleEndian.AppendUint32(append([]byte(nil), b[:len(b)-4]...), checksum(b[:len(b)-4]))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func FuzzFooter(f *testing.F) {
	ft := footer{runMeta: runMeta{Number: 1, Width: 64, Count: 3}, Partitions: 64, FilterBlocks: 1}
	f.Add(ft.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, withCRC(b)} {
			ft, err := decodeFooter("r", 0, b)
			if err == nil && !bytes.Equal(ft.encode(), b) {
				t.Fatalf("%x reads as %+v", b, ft)
			}
		}
	})
}

// Any bytes in front of a footer that claims them: reads answer or report damage.
func FuzzRun(f *testing.F) {
	f.Add([]byte("block"), uint64(1), uint64(1))
	f.Add(bytes.Repeat([]byte{0}, blockBytes+filterBlockBytes+fenceBytes), uint64(3), uint64(1))
	f.Fuzz(func(t *testing.T, body []byte, count, filterBlocks uint64) {
		ft := footer{runMeta: runMeta{Number: 1, Width: 64, Count: count}, Partitions: 64, FilterBlocks: filterBlocks,
			StoreID: testStore}
		if count > 0 && count < 1000 && filterBlocks < 1000 {
			blocks := int(blocksFor(count))
			if at := blocks * blockBytes; len(body) >= at+int(filterBlocks)*filterBlockBytes+blocks*fenceBytes {
				ft.FilterCRC = checksum(body[at : at+int(filterBlocks)*filterBlockBytes])
				ft.FenceCRC = checksum(body[at+int(filterBlocks)*filterBlockBytes:])
			}
		}
		tail := ft.encode()
		r, err := loadRun(vfs.NewMemFile(append(append([]byte(nil), body...), tail...)), "r", ft.runMeta, testStore, 64)
		if err != nil {
			return
		}
		for i := range uint64(10) {
			_, _ = r.find(hashOf(i))
			_, _ = r.find(Hash{Hi: i})
		}
		c := newCursor(r)
		for n := uint64(0); ; n++ {
			more, err := c.more()
			if err != nil || !more {
				break
			}
			c.rest = c.rest[entryBytes:]
			if n >= count {
				t.Fatalf("more than %d entries", count)
			}
		}
	})
}

// A block with a sound CRC is searched without regard for what is in it.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{1, 2, 3}, 3, uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, n int, hi, lo uint64) {
		var buf [blockBytes]byte
		copy(buf[:], body)
		h := Hash{hi, lo}
		got, ok := searchBlock(&buf, min(max(n, 0), blockKeys), h)
		if ok && got.Seq > maxSeq {
			t.Fatalf("%+v", got)
		}
	})
}
