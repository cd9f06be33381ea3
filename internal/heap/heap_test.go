package heap

import (
	"io/fs"
	"testing"
)

func TestHeadroomIsFixedWithinBounds(t *testing.T) {
	for live, want := range map[uint64]int{
		0: maxPercent, 1 << 20: maxPercent, 80 << 20: 400, 160 << 20: 200, 320 << 20: 100, 640 << 20: 50,
		4 << 30: minPercent,
	} {
		if got := percent(live); got != want {
			t.Errorf("%d live: %d %%, want %d", live, got, want)
		}
	}
}

func TestMemoryLimitIsAShareOfTheSmallest(t *testing.T) {
	files := map[string]string{}
	read := func(path string) ([]byte, error) {
		if b, ok := files[path]; ok {
			return []byte(b), nil
		}
		return nil, fs.ErrNotExist
	}
	expect := func(want int64) {
		t.Helper()
		if got := memoryLimit(read); got != want {
			t.Errorf("limit %d, want %d", got, want)
		}
	}
	expect(0)
	files["/proc/meminfo"] = "MemTotal:       1000000 kB\nMemFree: 1 kB\n"
	expect(716_800_000)
	files["/sys/fs/cgroup/memory.max"] = "max\n"
	expect(716_800_000)
	files["/sys/fs/cgroup/memory.max"] = "100000000\n"
	expect(70_000_000)
}
