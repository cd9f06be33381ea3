package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every quantile is at least the true one and at most a 32nd above it.
func TestHistogramQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		durations := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Minute)), 1, 300).Draw(t, "durations")
		var h, half Histogram
		for i, d := range durations {
			if i%2 == 0 {
				h.Add(time.Duration(d))
			} else {
				half.Add(time.Duration(d))
			}
		}
		h.Merge(&half)
		slices.Sort(durations)
		for _, perMille := range []int64{1, 500, 990, 999, 1000} {
			rank := (int64(len(durations))*perMille + 999) / 1000
			truth := time.Duration(durations[rank-1])
			if got := h.Quantile(perMille); got < truth || got > truth+truth/32+1 {
				t.Fatalf("quantile %d of %v is %v, said %v", perMille, durations, truth, got)
			}
		}
	})
}

func TestHistogramOfNothingAndOfAges(t *testing.T) {
	var h Histogram
	if q := h.Quantile(500); q != 0 {
		t.Errorf("the median of nothing is %v", q)
	}
	h.Add(-time.Second)
	h.Add(time.Hour)
	if q := h.Quantile(1000); q > time.Hour || q < time.Minute {
		t.Errorf("an hour is returned as %v", q)
	}
}
