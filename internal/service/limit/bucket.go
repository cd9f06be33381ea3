package limit

import (
	"math"
	"time"
)

// Dimension is what is counted.
type Dimension uint8

// The dimensions.
const (
	Requests Dimension = iota
	Events
	Bytes
	dimensions
)

func (d Dimension) String() string { return [dimensions]string{"requests", "events", "bytes"}[d] }

// Rate is what may be taken in a second. A zero takes any.
type Rate struct{ Requests, Events, Bytes int64 }

// IsZero reports whether nothing is limited.
func (r Rate) IsZero() bool { return r == Rate{} }

// Cost is what one request takes.
type Cost struct{ Requests, Events, Bytes int64 }

// Concerns reports whether the cost is limited by the rate.
func (c Cost) Concerns(r Rate) bool {
	return c.Requests != 0 && r.Requests != 0 || c.Events != 0 && r.Events != 0 || c.Bytes != 0 && r.Bytes != 0
}

func (r Rate) all() [dimensions]int64 { return [dimensions]int64{r.Requests, r.Events, r.Bytes} }
func (c Cost) all() [dimensions]int64 { return [dimensions]int64{c.Requests, c.Events, c.Bytes} }

// level is what a bucket holds. It fills at its rate up to one second's worth. What is larger than the whole bucket
// passes when the bucket is full and leaves a debt, or it could never pass.
type level struct {
	left [dimensions]float64
	at   time.Time // when left was true
}

func full(now time.Time, rates [dimensions]int64) level {
	l := level{at: now}
	for i, r := range rates {
		l.left[i] = float64(r)
	}
	return l
}

// fill adds what has come since. A clock that went backward adds nothing.
func (l *level) fill(now time.Time, rates [dimensions]int64) {
	since := max(0, now.Sub(l.at).Seconds())
	for i, r := range rates {
		l.left[i] = min(float64(r), l.left[i]+since*float64(r))
	}
	l.at = now
}

// lacks says for how long there is too little, and of what; zero when there is enough.
func (l *level) lacks(rates, costs [dimensions]int64) (wait time.Duration, of Dimension) {
	for i, r := range rates {
		need := float64(min(costs[i], r))
		if r == 0 || costs[i] == 0 || l.left[i]+slack(r) >= need {
			continue
		}
		if w := seconds((need - l.left[i]) / float64(r)); w > wait {
			wait, of = w, Dimension(i)
		}
	}
	return wait, of
}

func (l *level) take(rates, costs [dimensions]int64) {
	for i, r := range rates {
		if r != 0 {
			l.left[i] -= float64(costs[i])
		}
	}
}

// show adds the dimensions of a bucket to a standing, if one of them is nearer to its end.
func (l *level) show(rates [dimensions]int64, s *Standing) {
	for i, r := range rates {
		if r == 0 {
			continue
		}
		if share := l.left[i] / float64(r); s.Limit == 0 || share < s.share {
			*s = Standing{Limit: r, Remaining: max(0, int64(l.left[i])), Reset: seconds(1 - share), share: share}
		}
	}
}

// slack forgives what sums of fractions lose, so that who waits as long as answered finds enough.
func slack(rate int64) float64 { return 1e-6 + 1e-12*float64(rate) }

func seconds(s float64) time.Duration {
	return time.Duration(math.Ceil(max(0, s) * float64(time.Second)))
}
