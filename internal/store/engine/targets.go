package engine

import (
	"cmp"
	"slices"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// # Facts that are corrected
//
// A correction needs the row of its target, and the journal gives rows by the section. What judging remembers of them
// (recall.go) has a bound, and corrections may be of facts in more sections than that. So a batch brings the targets of
// its corrections along: its caller reads each section once, in order, without the lock, and keeps the rows that are
// wanted, together with their counters.
//
// Rows never change, and a key names the same row for ever. What is not durable yet, or cannot be read, is left for
// judging. A target that leaves the ledger meanwhile lies below the floor, where judging refuses its correction.

// targetCells is how many counters a target counts as, of maxFetched: it takes up to four times as much memory.
const targetCells = 4

// fetchTargets reads the facts that the batch corrects. Engine.mu is not held.
func (e *Engine) fetchTargets(w *work, s *scratch, set *resident.Set) {
	var m recall // of one section: the rows are in order
	for _, one := range e.findTargets(w, s) {
		if !e.mayFetch(targetCells) {
			break
		}
		section := m.find(w.book, one.seq)
		if section == nil {
			e.metrics.sectionsFetched.Inc()
			var err error
			if section, err = e.readInto(&m, w.book, one.seq, w.book.published.Load().resident); err != nil {
				e.waiting.Add(-targetCells)
				continue
			}
		}
		e.takeTarget(w, one.key, section.row(one.seq))
	}
	if w.targets != nil {
		e.fetchCorrected(w, set)
	}
}

// takeTarget keeps a row that there is room for, if it is the one that is wanted.
func (e *Engine) takeTarget(w *work, k usage.Key, row *ledger.Row) {
	if row == nil || row.Kind() != ledger.EventRow || row.Event.Key != k {
		e.waiting.Add(-targetCells)
		return
	}
	if w.targets == nil {
		w.targets = map[usage.Key]*usage.Row{}
	}
	target := *row.Event
	target.Properties = "" // no rule looks at them, and they are long
	own := target.Clone()
	w.targets[own.Key] = own
}

// fetchCorrected reads the counters and plans of the targets that the batch brings along.
func (e *Engine) fetchCorrected(w *work, set *resident.Set) {
	for i := range w.facts {
		f := &w.facts[i]
		target := w.targets[usage.KeyOfID(f.Event.Corrects)]
		if target == nil || f.Refusal != nil {
			continue
		}
		for j := range target.Outcomes {
			m := set.Catalog.Number(target.Outcomes[j].Meter)
			if m == nil || f.Event.Has(usage.GivenMeter) && m.Slug != f.Event.Meter {
				continue
			}
			id := usage.CounterID{Meter: m.Number, Customer: target.Customer, Month: target.Month()}
			e.fetchOne(w, id, m.Slug, cellHash(w.book.number, id, hashCustomer(id.Customer)))
		}
		if set.HasPlans() {
			e.fetchPlan(w, target.Customer)
		}
	}
}

// wantedRow is a row and the key that names it.
type wantedRow struct {
	key usage.Key
	seq uint64
}

// findTargets looks up the rows that the batch corrects, as far as they are durable, in order and each once.
func (e *Engine) findTargets(w *work, s *scratch) (wanted []wantedRow) {
	s.hashes = s.hashes[:0]
	for i := range w.facts {
		if f := &w.facts[i]; f.Refusal == nil && f.Event.Corrects != "" && !f.found.OK {
			k := usage.KeyOfID(f.Event.Corrects)
			wanted = append(wanted, wantedRow{key: k})
			s.hashes = append(s.hashes, s.hash.key(e.index.Seed(), w.book.number, k))
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	s.found = sized(s.found, len(wanted))
	at, err := e.index.Probe(s.hashes, s.found)
	if err != nil {
		return nil
	}
	durable := w.book.published.Load().head.Seq
	e.lookUp(s, at)
	found := wanted[:0]
	for i, one := range wanted {
		if one.seq = s.found[i].Seq; s.found[i].OK && one.seq <= durable {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b wantedRow) int { return cmp.Compare(a.seq, b.seq) })
	return slices.CompactFunc(found, func(a, b wantedRow) bool { return a.seq == b.seq })
}

// lookUp completes a probe, some keys at a time so that the decider is not held up. What cannot be read is left for
// judging.
func (e *Engine) lookUp(s *scratch, at keyindex.Epoch) {
	const some = 256
	for from := 0; from < len(s.hashes); from += some {
		e.mu.RLock()
		for i := from; i < min(from+some, len(s.hashes)); i++ {
			if f, err := e.index.Lookup(s.hashes[i], s.found[i], at); err == nil {
				s.found[i] = f
			}
		}
		e.mu.RUnlock()
	}
}
