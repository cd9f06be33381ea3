// Package heap tunes Go's collector for a server that makes garbage at the pace of its traffic but keeps little of it.
// It owns two settings of the runtime, for the whole process, where the environment (GOGC, GOMEMLIMIT) does not set
// them.
package heap

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// headroom is the garbage that may gather between two collections. A share of what is live, which is the runtime's own
// rule, would grow with the key index's filters, which cost the collector nothing: at 100 million keys the process
// would hold a gigabyte more than it needs. A fixed amount makes collecting as rare as the traffic allows, whatever is
// live.
const headroom = 320 << 20

// The share stays within bounds all the same: a small heap need not wait for all of the headroom, and a very large one
// should not be collected all the time.
const minPercent, maxPercent = 30, 400

// memoryShare of what the machine or the container has is where the collector works harder whatever it costs: the rest
// is for the page cache, which the journal and the key index live on.
const memoryShare = 70

// Tune sets both, and keeps the headroom what it is after every collection.
func Tune() {
	if os.Getenv("GOGC") == "" {
		adjust()
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := memoryLimit(os.ReadFile); limit > 0 {
			debug.SetMemoryLimit(limit)
		}
	}
}

// sentinel is unreachable as soon as it is made, so that the next collection finalizes it.
type sentinel struct{ _ [16]byte }

// adjust runs once for every collection.
func adjust() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		debug.SetGCPercent(percent(sample[0].Value.Uint64()))
	}
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) { adjust() })
}

// percent is the runtime's setting that leaves the headroom above what is live.
func percent(live uint64) int {
	return int(min(maxPercent, max(minPercent, headroom*100/max(live, 1))))
}

// memoryLimit is the share of the smaller of the machine's memory and the container's; 0 when neither is known.
func memoryLimit(read func(path string) ([]byte, error)) int64 {
	least := int64(0)
	take := func(v int64) {
		if v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	if b, err := read("/proc/meminfo"); err == nil {
		line, _, _ := bytes.Cut(b, []byte("\n"))
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "MemTotal:" {
			kib, _ := strconv.ParseInt(string(f[1]), 10, 64) // 0 when it is no number
			take(kib * 1024)
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := read(path); err == nil {
			v, _ := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64) // 0 for "max"
			take(v)
		}
	}
	return least / 100 * memoryShare
}
