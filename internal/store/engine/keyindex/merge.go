package keyindex

import (
	"errors"
	"math"
	"slices"
	"time"
)

// fanIn runs of one tier and range are merged into the next tier. Four means three
// merges per key at 64 million keys and six runs to probe; two would double the
// first, eight the second.
const fanIn = 4

func (x *Index) mergeLoop() {
	var delay time.Duration
	for {
		// An error closing a file that was only read says nothing about its data.
		_ = x.reap()
		inputs := x.nextMerge()
		if inputs == nil {
			select {
			case <-x.stop:
				return
			case <-x.mergePoke:
			}
			continue
		}
		x.begin(&x.merging)
		err := x.merge(inputs)
		x.noteMerge(err)
		x.end(&x.merging, err)
		if err == nil {
			delay = 0
			continue
		}
		if !x.pause(&delay, x.mergeRetry) {
			return
		}
	}
}

// noteMerge halts merging at damage: trying again would only read it again.
func (x *Index) noteMerge(err error) {
	x.mu.Lock()
	if err == nil {
		x.stats.MergesDone++
	}
	fatal := isDamage(err) && !x.halted
	x.halted = x.halted || fatal
	x.mu.Unlock()
	if fatal && x.opts.Fatal != nil {
		x.opts.Fatal(err)
	}
}

func (x *Index) nextMerge() []*run {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.halted {
		return nil
	}
	return x.mergeable()
}

// mergeable picks the four oldest runs of the lowest tier that has four over the same
// range. Low tiers first: they are small, and every probe meets them. x.mu is held.
func (x *Index) mergeable() []*run {
	type group struct{ tier, lo uint32 }
	groups := make(map[group][]*run)
	var best []*run
	for _, r := range x.view.runs {
		g := group{r.Tier, r.Lo}
		groups[g] = append(groups[g], r)
		if n := len(groups[g]); n < fanIn {
			continue
		}
		if best == nil || r.Tier < best[0].Tier {
			best = groups[g]
		}
	}
	if best == nil {
		return nil
	}
	best = slices.Clone(best)
	slices.SortFunc(best, func(a, b *run) int {
		if a.Number < b.Number {
			return -1
		}
		return 1
	})
	return best[:fanIn]
}

// merge rewrites the inputs, which share tier and range, as runs of the next tier
// over quarters of the range.
func (x *Index) merge(inputs []*run) error {
	outputs, err := x.mergeQuarters(inputs)
	if err != nil {
		for _, r := range outputs {
			err = errors.Join(err, r.file.Close())
			x.removeFile(r.name)
		}
		return err
	}
	return x.commit(outputs, inputs, nil)
}

func (x *Index) mergeQuarters(inputs []*run) ([]*run, error) {
	first := inputs[0]
	m, err := newMerger(inputs)
	if err != nil {
		return nil, err
	}
	var newest uint64
	for _, r := range inputs {
		newest = max(newest, r.flushed)
	}
	width := max(1, first.Width/fanIn)
	var outputs []*run
	for lo := first.Lo; lo < first.Lo+first.Width; lo += width {
		from, last := x.rangeOf(lo, width)
		keys := keysBetween(inputs, from, last)
		if keys == 0 || !m.has(last) {
			continue
		}
		w, err := x.newWriter(first.Tier+1, lo, width, keys)
		if err != nil {
			return outputs, err
		}
		r, err := x.finishRun(w, m.copyTo(w, last))
		if err != nil {
			return outputs, err
		}
		r.flushed = newest
		outputs = append(outputs, r)
	}
	return outputs, m.complete()
}

// rangeOf is the first and the last Hi of partitions [lo, lo+width). The end of the
// last partition is 2^64, which is 0, and one below that is right again.
func (x *Index) rangeOf(lo, width uint32) (from, last uint64) {
	return uint64(lo) << x.pshift, uint64(lo+width)<<x.pshift - 1
}

// keysBetween bounds, from the fences, how many keys the runs have in a range: at
// most a block each too many, which is near enough to size a filter.
func keysBetween(inputs []*run, from, last uint64) int64 {
	var n int64
	for _, r := range inputs {
		begin := max(r.firstFenceNotBelow(from), 1) - 1
		end := len(r.fence)
		if last < math.MaxUint64 {
			end = r.firstFenceNotBelow(last + 1)
		}
		n += min(int64(end-begin)*blockKeys, int64(r.Count))
	}
	return n
}

// merger yields the entries of several runs in ascending order. Four heads are
// cheaper to scan than to keep in a heap.
type merger struct {
	heads   []*cursor
	want    uint64
	written uint64
}

func newMerger(inputs []*run) (*merger, error) {
	m := &merger{}
	for _, r := range inputs {
		c := newCursor(r)
		if _, err := c.advance(); err != nil {
			return nil, err
		}
		m.heads = append(m.heads, c)
		m.want += r.Count
	}
	return m, nil
}

func (m *merger) least() *cursor {
	least := m.heads[0]
	for _, c := range m.heads[1:] {
		if c.hash.less(least.hash) {
			least = c
		}
	}
	return least
}

func (m *merger) has(last uint64) bool {
	return len(m.heads) > 0 && m.least().hash.Hi <= last
}

// copyTo writes all entries up to last.
func (m *merger) copyTo(w *runWriter, last uint64) error {
	for len(m.heads) > 0 {
		c := m.least()
		if c.hash.Hi > last {
			return nil
		}
		s := w.slot(c.hash)
		if s == nil {
			if errors.Is(w.err, errOrder) {
				return &Damage{File: c.r.name, Offset: c.offset(), Reason: "key out of order or in two runs", Err: w.err}
			}
			return w.err
		}
		copy(s, c.rec)
		m.written++
		more, err := c.advance()
		if err != nil {
			return err
		}
		if !more {
			m.heads = slices.DeleteFunc(m.heads, func(o *cursor) bool { return o == c })
		}
	}
	return nil
}

// complete checks that what went in came out: a key outside its run's range would
// be left over.
func (m *merger) complete() error {
	if len(m.heads) == 0 && m.written == m.want {
		return nil
	}
	c := m.heads[0]
	return &Damage{File: c.r.name, Offset: c.offset(), Reason: "key outside the range of its run"}
}
