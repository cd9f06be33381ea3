package keyindex

import "slices"

// view is an immutable set of runs. Its layers arrange them so that a partition
// meets each of its runs in another layer: a probe walks all keys through one layer
// before the next, and the cache misses of a thousand keys overlap.
type view struct {
	runs    []*run
	layers  [][]lane
	pshift  uint
	flushed uint64 // number of the newest table whose entries are in the runs
	pins    int    // guarded by Index.mu; 1 while it is the current view
}

// lane is what a probe needs of a run, side by side.
type lane struct {
	filt  filter
	shift uint
	run   *run
}

func newView(runs []*run, partitions uint32, pshift uint, flushed uint64) *view {
	v := &view{
		runs:    runs,
		pshift:  pshift,
		flushed: flushed,
		pins:    1,
	}
	// Widest first: ranges nest, so each run then fits into the first free layer
	// and there are no more layers than runs of the fullest partition.
	byWidth := slices.Clone(runs)
	slices.SortStableFunc(byWidth, func(a, b *run) int { return int(b.Width) - int(a.Width) })
	for _, r := range byWidth {
		free := v.freeLayer(r, partitions)
		for p := r.Lo; p < r.Lo+r.Width; p++ {
			v.layers[free][p] = lane{filt: r.filt, shift: r.shift, run: r}
		}
	}
	return v
}

func (v *view) freeLayer(r *run, partitions uint32) int {
	for i, layer := range v.layers {
		taken := func(l lane) bool { return l.run != nil }
		if !slices.ContainsFunc(layer[r.Lo:r.Lo+r.Width], taken) {
			return i
		}
	}
	layer := make([]lane, partitions)
	for i := range layer {
		layer[i].filt = emptyFilter
	}
	v.layers = append(v.layers, layer)
	return len(v.layers) - 1
}

func (v *view) probe(keys []Hash, out []Found) error {
	clear(out[:len(keys)])
	for _, layer := range v.layers {
		for i, h := range keys {
			l := &layer[h.Hi>>v.pshift]
			if !l.filt.has(h.Hi<<l.shift, h.Lo) || out[i].OK {
				continue
			}
			f, err := l.run.find(h)
			if err != nil {
				return err
			}
			out[i] = f
		}
	}
	return nil
}

// getSince looks h up in the runs that hold entries of tables newer than the given one.
func (v *view) getSince(h Hash, flushed uint64) (Found, error) {
	for _, layer := range v.layers {
		l := &layer[h.Hi>>v.pshift]
		if l.run == nil || l.run.flushed <= flushed || !l.filt.has(h.Hi<<l.shift, h.Lo) {
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
