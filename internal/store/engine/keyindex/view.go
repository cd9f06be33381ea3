package keyindex

import (
	"cmp"
	"slices"
)

// probeChunk is how many keys a probe sifts before it searches for those left.
const probeChunk = 1024

// view is an immutable set of runs. Its layers arrange them so that a partition
// meets each of its runs in another layer: a probe walks all keys through one layer
// before the next, and the cache misses of many keys overlap.
type view struct {
	runs     []*run
	layers   [][]lane
	sketches []sketch // by partition; each admits every key that the runs have there
	pshift   uint
	flushed  uint64 // number of the newest table whose entries are in the runs
	pins     int    // guarded by Index.mu; 1 while it is the current view
}

// lane is what a probe needs of a run, side by side.
type lane struct {
	filt  filter
	shift uint
	run   *run
}

func newView(runs []*run, sketches []sketch, pshift uint, flushed uint64) *view {
	v := &view{
		runs:     runs,
		sketches: sketches,
		pshift:   pshift,
		flushed:  flushed,
		pins:     1,
	}
	// Widest first: ranges nest, so each run then fits into the first free layer
	// and there are no more layers than runs of the fullest partition. Newest first
	// among them: what is sent again was most likely sent not long ago.
	ordered := slices.Clone(runs)
	slices.SortFunc(ordered, func(a, b *run) int {
		return cmp.Or(cmp.Compare(b.Width, a.Width), cmp.Compare(b.Number, a.Number))
	})
	for _, r := range ordered {
		free := v.freeLayer(r)
		for p := r.Lo; p < r.Lo+r.Width; p++ {
			v.layers[free][p] = lane{filt: r.filt, shift: r.shift, run: r}
		}
	}
	return v
}

func (v *view) freeLayer(r *run) int {
	for i, layer := range v.layers {
		taken := func(l lane) bool { return l.run != nil }
		if !slices.ContainsFunc(layer[r.Lo:r.Lo+r.Width], taken) {
			return i
		}
	}
	layer := make([]lane, len(v.sketches))
	for i := range layer {
		layer[i].filt = emptyFilter
	}
	v.layers = append(v.layers, layer)
	return len(v.layers) - 1
}

// withSketch is the same view with another sketch for one partition.
func (v *view) withSketch(p uint32, s sketch) *view {
	w := *v
	w.pins = 1
	w.sketches = slices.Clone(v.sketches)
	w.sketches[p] = s
	return &w
}

// covering are the runs that may have keys of a partition.
func (v *view) covering(p uint32) []*run {
	var runs []*run
	for _, layer := range v.layers {
		if r := layer[p].run; r != nil {
			runs = append(runs, r)
		}
	}
	return runs
}

func (v *view) probe(keys []Hash, out []Found) error {
	clear(out[:len(keys)])
	var left [probeChunk]uint16
	for len(keys) > 0 {
		n := min(len(keys), probeChunk)
		if err := v.search(keys[:n], v.sift(keys[:n], &left), out); err != nil {
			return err
		}
		keys, out = keys[n:], out[n:]
	}
	return nil
}

// sift gathers the keys that the sketches admit. The first loop does nothing but load,
// so that as many loads as the processor can have under way overlap; the second has no
// branch that depends on what was loaded.
func (v *view) sift(keys []Hash, left *[probeChunk]uint16) []uint16 {
	var words [probeChunk]uint64
	pbits := 64 - v.pshift
	for i := range keys {
		hi := keys[i].Hi
		words[i%probeChunk] = v.sketches[hi>>v.pshift].load(hi << pbits)
	}
	n := 0
	for i := range keys {
		left[n%probeChunk] = uint16(i)
		n += int(admits(words[i%probeChunk], keys[i].Hi))
	}
	return left[:n]
}

// mayHold asks the sketch for one key.
func (v *view) mayHold(hi uint64) bool {
	return admits(v.sketches[hi>>v.pshift].load(hi<<(64-v.pshift)), hi) != 0
}

// search looks the keys left up in the runs, and uses the space of left meanwhile. In
// each layer the filters are asked first, in a loop like those of sift.
func (v *view) search(keys []Hash, left []uint16, out []Found) error {
	var hits [probeChunk]uint16
	for _, layer := range v.layers {
		n := 0
		for _, i := range left {
			h := &keys[i]
			l := &layer[h.Hi>>v.pshift]
			hits[n%probeChunk] = i
			n += int(l.filt.admits(h.Hi<<l.shift, h.Lo))
		}
		found := false
		for _, i := range hits[:n] {
			f, err := layer[keys[i].Hi>>v.pshift].run.find(keys[i])
			if err != nil {
				return err
			}
			out[i] = f
			found = found || f.OK
		}
		if found {
			left = slices.DeleteFunc(left, func(i uint16) bool { return out[i].OK })
		}
	}
	return nil
}

// getSince looks h up in the runs that hold entries of tables newer than the given one.
func (v *view) getSince(h Hash, flushed uint64) (Found, error) {
	if !v.mayHold(h.Hi) {
		return Found{}, nil
	}
	for _, layer := range v.layers {
		l := &layer[h.Hi>>v.pshift]
		if l.run == nil || l.run.flushed <= flushed || l.filt.admits(h.Hi<<l.shift, h.Lo) == 0 {
			continue
		}
		if f, err := l.run.find(h); err != nil || f.OK {
			return f, err
		}
	}
	return Found{}, nil
}

// pin takes the current view, which keeps its runs open and on disk until unpin.
func (x *Index) pin() (*view, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	x.view.pins++
	return x.view, nil
}

func (x *Index) unpin(v *view) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unpinLocked(v)
}

func (x *Index) unpinLocked(v *view) {
	v.pins--
	if v.pins > 0 {
		return
	}
	x.liveViews--
	for _, r := range v.runs {
		r.views--
		if r.views == 0 {
			x.dead = append(x.dead, r)
		}
	}
	x.changed.Broadcast()
	poke(x.mergePoke)
}

// setView makes v the current view. x.mu is held.
func (x *Index) setView(v *view) {
	old := x.view
	for _, r := range v.runs {
		r.views++
	}
	x.view = v
	x.liveViews++
	if old != nil {
		x.unpinLocked(old)
	}
}
