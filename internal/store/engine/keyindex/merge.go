package keyindex

import (
	"errors"
	"slices"
	"time"
)

const (
	// fanIn runs of one tier and range are merged into runs of a higher one. Sixteen
	// means one merge per key up to 256 million keys. It also means up to thirty runs
	// in a partition there, which only keys that the sketch admits have to ask.
	fanIn = 16
	// tierStep: tier t is 4^t tables over 1/4^t of the key space, and sixteen is 4^2.
	tierStep = 2
)

func (x *Index) mergeLoop() {
	var delay time.Duration
	for {
		// An error closing a file that was only read says nothing about its data.
		_ = x.reap()
		work := x.nextWork()
		if work == nil {
			select {
			case <-x.stop:
				return
			case <-x.mergePoke:
			}
			continue
		}
		x.begin(&x.merging)
		err := work()
		x.haltAtDamage(err)
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

// haltAtDamage ends the work of mergeLoop at damage: trying again would only read it
// again.
func (x *Index) haltAtDamage(err error) {
	x.mu.Lock()
	fatal := isDamage(err) && !x.halted
	x.halted = x.halted || fatal
	x.mu.Unlock()
	if fatal && x.opts.Fatal != nil {
		x.opts.Fatal(err)
	}
}

// nextWork prefers sketches: they are made in milliseconds, and without one every key
// of a partition asks every run.
func (x *Index) nextWork() func() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.halted {
		return nil
	}
	if p, due := x.sketchDue(); due {
		return func() error { return x.resketch(p) }
	}
	if inputs := x.mergeable(); inputs != nil {
		return func() error { return x.merge(inputs) }
	}
	return nil
}

// mergeable picks the sixteen oldest runs of the lowest tier that has sixteen over the
// same range. Low tiers first: they cover more partitions. x.mu is held.
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

// merge rewrites the inputs, which share tier and range, as runs of a higher tier over
// sixteenths of the range.
func (x *Index) merge(inputs []*run) error {
	outputs, err := x.rewrite(inputs)
	if err != nil {
		for _, r := range outputs {
			err = errors.Join(err, r.file.Close())
			x.removeFile(r.name)
		}
		return err
	}
	return x.commit(change{added: outputs, removed: inputs})
}

func (x *Index) rewrite(inputs []*run) ([]*run, error) {
	first := inputs[0]
	begin, _ := x.rangeOf(first.Lo, first.Width)
	m, err := newMerger(inputs, begin, x.pshift)
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
		w, err := x.newWriter(first.Tier+tierStep, lo, width, keys)
		if err != nil {
			return outputs, err
		}
		r, err := x.finishRun(w, copyUpTo(last, m, w, inputs))
		if err != nil {
			return outputs, err
		}
		r.flushed = newest
		outputs = append(outputs, r)
	}
	if len(m.cursors) > 0 {
		return outputs, outsideItsRange(m.cursors[0])
	}
	return outputs, nil
}

// copyUpTo writes all entries that the merger has up to a Hi.
func copyUpTo(last uint64, m *merger, w *runWriter, inputs []*run) error {
	for {
		piece, err := m.next(last)
		if err != nil || len(piece) == 0 {
			return err
		}
		if err := w.append(piece); err != nil {
			if errors.Is(err, errOrder) {
				return inTwoRuns(piece, inputs)
			}
			return err
		}
	}
}

// inTwoRuns names the run that holds a key of the piece once more.
func inTwoRuns(piece []Entry, inputs []*run) error {
	damage := &Damage{File: inputs[0].name, Reason: "key in two runs", Err: errOrder}
	for i := 1; i < len(piece); i++ {
		h := piece[i].Hash
		if piece[i-1].Hash.less(h) {
			continue
		}
		for _, r := range inputs {
			found, err := r.find(h)
			if err != nil {
				return err
			}
			if found.OK {
				damage.File, damage.Offset = r.name, int64(max(r.firstFenceNotBelow(h.Hi), 1)-1)*blockBytes
			}
		}
	}
	return damage
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
		begin, end := r.blocksBetween(from, last)
		n += min(int64(end-begin)*blockKeys, int64(r.Count))
	}
	return n
}
