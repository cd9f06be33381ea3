package keyindex

import (
	"math/bits"
	"sync/atomic"
)

const (
	// sketchBits is how many bits a key has when a sketch has reached its limit. A new
	// sketch has up to twice as many, so false alarms lie between 0.7 and 4.5 in 100
	// and the sketches of 100 M keys near 125 MB.
	sketchBits = 7
	// smallestLimit is what the sizes of sketches are doubled from.
	smallestLimit = 8
)

// sketch says which keys of one partition may be in a run: all of them in one array
// of words, whatever the number of runs. A key owns one word, chosen by its place in
// the partition, so that keys in order sweep the sketch in order, and sets up to four
// bits of it, chosen by the low bits of Hi. The filters of runs choose theirs by Lo,
// so that what one lets pass in error the other most likely does not.
//
// Bits are only ever set. Readers load words while the flush sets bits in them.
type sketch []uint64

// unsketched is what a partition has whose sketch is not made yet: it denies nothing.
// Adding to it changes nothing, so nobody has to ask for it.
var unsketched = sketch{1<<64 - 1}

func newSketch(limit int64) sketch { return make(sketch, (limit*sketchBits+63)/64) }

// word finds a key's word; within is Hi without the bits that name the partition.
func (s sketch) word(within uint64) *uint64 {
	i, _ := bits.Mul64(within, uint64(len(s)))
	return &s[i]
}

func (s sketch) add(hi, within uint64) {
	atomic.OrUint64(s.word(within), 1<<(hi&63)|1<<(hi>>6&63)|1<<(hi>>12&63)|1<<(hi>>18&63))
}

func (s sketch) load(within uint64) uint64 { return atomic.LoadUint64(s.word(within)) }

// admits is 1 if the key, whose word this is, may be in a run, and 0 if it is in none.
func admits(w, hi uint64) uint64 {
	return w >> (hi & 63) & (w >> (hi >> 6 & 63)) & (w >> (hi >> 12 & 63)) & (w >> (hi >> 18 & 63)) & 1
}

// sketchLimit is for how many keys to make the sketch of a partition that has so many.
// Each partition doubles from a start of its own: they outgrow their sketches one
// after the other and not in the same moment.
func sketchLimit(p, partitions uint32, keys int64) int64 {
	limit := smallestLimit + smallestLimit*int64(p)/int64(partitions)
	for limit <= keys {
		limit *= 2
	}
	return limit
}

// tally is how full a sketch is. While there is none, limit is 0 and keys may be a few
// too many.
type tally struct{ keys, limit int64 }

// sketchDue is a partition with keys but no sketch for so many. x.mu is held.
func (x *Index) sketchDue() (p uint32, due bool) {
	for p, t := range x.tallies {
		if t.keys > t.limit {
			return uint32(p), true
		}
	}
	return 0, false
}

// resketch makes the sketch of a partition again, with room to grow. What is flushed
// while it reads is not in the runs it reads, so it reads those too before it
// publishes, and keeps flushes away from there on.
func (x *Index) resketch(p uint32) error {
	v, err := x.pin()
	if err != nil {
		return err
	}
	defer x.unpin(v)
	limit := sketchLimit(p, x.partitions, x.keysSketched(p))
	s := newSketch(limit)
	keys, err := x.sketchRuns(s, v, p, 0)
	if err != nil {
		return err
	}
	x.sketchMu.Lock()
	defer x.sketchMu.Unlock()
	now, err := x.pin()
	if err != nil {
		return err
	}
	defer x.unpin(now)
	more, err := x.sketchRuns(s, now, p, v.flushed)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setView(x.view.withSketch(p, s))
	x.tallies[p] = tally{keys: keys + more, limit: limit}
	x.stats.SketchesMade++
	return nil
}

func (x *Index) keysSketched(p uint32) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tallies[p].keys
}

// sketchRuns adds the keys of a partition in the runs that hold tables newer than the
// given one, and counts them.
func (x *Index) sketchRuns(s sketch, v *view, p uint32, since uint64) (int64, error) {
	from, last := x.rangeOf(p, 1)
	var buf []byte
	var keys int64
	for _, r := range v.covering(p) {
		if r.flushed <= since {
			continue
		}
		if x.stopping() {
			return 0, errStopped
		}
		c := newRangeCursor(r, from, last, buf)
		n, err := s.addAll(c, p, x.pshift)
		if err != nil {
			return 0, err
		}
		keys += n
		buf = c.buf
	}
	return keys, nil
}

// addAll adds the keys of a partition that the cursor has, and counts them.
func (s sketch) addAll(c *cursor, p uint32, pshift uint) (keys int64, err error) {
	for {
		more, err := c.more()
		if err != nil || !more {
			return keys, err
		}
		for ; len(c.rest) > 0; c.rest = c.rest[entryBytes:] {
			hi := entryHi(c.rest)
			if hi>>pshift != uint64(p) {
				continue
			}
			s.add(hi, hi<<(64-pshift))
			keys++
		}
		giveWay()
	}
}
