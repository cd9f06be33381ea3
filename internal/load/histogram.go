package load

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets whose width is a 32nd of their value, from nanoseconds to minutes, in 8 KiB:
// the quantiles it returns are at most 3 % too high, whatever the range.
type Histogram struct {
	buckets [histogramBuckets]int64
	count   int64
	longest time.Duration
}

const (
	// fineBits is how many bits below the highest one are distinguished.
	fineBits = 5
	fine     = 1 << fineBits
	// histogramBuckets covers 2^36 ns, over a minute; what takes longer is counted there.
	histogramBuckets = (36 - fineBits + 1) * fine
)

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucketOf(uint64(d))]++
	h.count++
	h.longest = max(h.longest, d)
}

func bucketOf(n uint64) int {
	if n < fine {
		return int(n)
	}
	shift := bits.Len64(n) - 1 - fineBits
	return min((shift+1)*fine+int(n>>shift)-fine, histogramBuckets-1)
}

// above is the smallest duration that a bucket does not hold.
func above(bucket int) time.Duration {
	if bucket < fine {
		return time.Duration(bucket + 1)
	}
	shift := bucket/fine - 1
	return time.Duration(fine+bucket%fine+1) << shift
}

// Merge adds what another histogram counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.longest = max(h.longest, o.longest)
}

// Quantile returns a duration that perMille thousandths of all durations do not exceed, and zero when there are none.
func (h *Histogram) Quantile(perMille int64) time.Duration {
	rank := (h.count*perMille + 999) / 1000
	var seen int64
	for i, n := range h.buckets {
		if seen += n; seen >= rank && n > 0 {
			return min(above(i), h.longest)
		}
	}
	return h.longest
}
