package app

import (
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
)

// gcPercent trades memory for time. A server that takes in a million events a second makes garbage at that pace but keeps
// little, so letting the heap grow to four times what is live costs a few hundred MiB and saves most of the collector's work.
const gcPercent = 300

// memoryShare of what the machine or the container has is where the collector starts to work harder instead: the rest is for
// the page cache, which the journal and the key index live on.
const memoryShare = 70

// tuneMemory sets the two where the environment (GOGC, GOMEMLIMIT) does not.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := memoryLimit(os.ReadFile); limit > 0 {
			debug.SetMemoryLimit(limit)
		}
	}
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
