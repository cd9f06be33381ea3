package engine

import (
	"errors"
	"runtime"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
)

// # How the committer works
//
// Everything that changes a ledger passes through one committer, so there is one order and no two facts race. It is two
// goroutines in a line:
//
//	Record, Update ─▶ queue ─▶ decider ─▶ writer ─▶ answers
//	  (prepare)                 judges     encodes, writes, syncs, grows the tree
//
// The decider takes what already waits, never lingering for more, and judges it fact by fact against the state in
// memory, which it changes at once. While the writer is busy with one group the decider fills the next; it hands it
// over when the writer is free. So a group is as large as what arrived during one sync, and a lone caller waits for one
// sync only. A group that has become large goes as soon as the writer is free, whatever still waits: the two must work
// at the same time.
//
// Invariants:
//
//  1. A group is written only after the group before it was synced. Its facts may have been judged on that group's: had
//     the earlier one been lost and the later one kept, a duplicate would stand without its original.
//  2. Nobody learns of anything before it is durable. Verdicts are answered when their group is, also those that added
//     no row: the row that makes a fact a duplicate may be in the group before. Readers that see a change wait for its
//     group.
//  3. After deciding, nothing may fail. Space is reserved in the journal before a fact is judged, and what the rows of
//     an update change is read before the first of them is applied; if either fails the call is refused with nothing
//     changed. What fails all the same, a write or sync above all, ends the process: memory then holds decisions that
//     the disk does not, or half of one, and only a restart makes them one again. No group is written after that.
//  4. The state in memory belongs to the decider. It changes under Engine.mu, held for one call's facts at a time, so
//     that readers get in between. The writer never takes Engine.mu: the decider may wait for it while holding it
//     (drain).
//  5. The decider runs functions that are not its own, those of updates. A panic in one is that call's error
//     (store.RunUpdate).
//
// Rejected: deciding in parallel for different tenants. Judging is a quarter of the work of a fact, the rest happens
// before and after; a second decider gains nothing on two cores and makes every invariant above harder.

// decideLoop runs until the queue is closed and empty.
func (e *Engine) decideLoop() {
	defer close(e.checkpoints)
	defer close(e.toWrite)
	defer func() { answerAll(e.asked.close(), errClosed()) }()
	g := newGroup()
	for {
		e.admitWaiting(g)
		if len(g.works) == 0 {
			if e.queue.isClosed() && e.queue.waiting() == 0 {
				return
			}
			e.maybeCheckpoint() // one may be asked for while nothing comes in
			<-e.queue.wake
			continue
		}
		if !e.groupFull(g) && !e.mayGo(g) {
			select {
			case <-e.idle:
				e.idle <- struct{}{} // deciding may need to drain
			case <-e.queue.wake:
				continue
			}
			e.letRun(g)
		}
		<-e.idle
		e.seal(g)
		e.toWrite <- g
		g = newGroup()
		e.maybeCheckpoint()
	}
}

// letRun gives way once to callers that are ready to run and takes what they bring. On a busy machine they wait for a
// processor, not for the disk; without this each would find a group just gone, and groups of two or three would keep
// the disk busy. On an idle one nobody is ready and it returns at once: nothing ever lingers by the clock.
func (e *Engine) letRun(g *group) {
	for range yields {
		runtime.Gosched()
		if !e.admitWaiting(g) {
			return
		}
	}
}

// yields bounds how often a group gives way.
const yields = 4

func (e *Engine) groupFull(g *group) bool {
	return g.facts >= maxGroupFacts || g.bound >= e.maxGroup
}

// mayGo reports whether the group is large enough for a sync of its own and the writer is free for it. Without this the
// first answers set a pace that all callers fall into: everyone's facts in one group, judged while nothing is written,
// written while nothing is judged.
func (e *Engine) mayGo(g *group) bool { return g.facts >= goodGroupFacts && len(e.idle) > 0 }

// admitWaiting judges what waits into the group, as far as it fits. It reports whether there was anything.
func (e *Engine) admitWaiting(g *group) bool {
	start, some := time.Now(), false
	for !e.groupFull(g) && !e.mayGo(g) {
		from := len(g.works)
		g.works = e.queue.take(g.works, min(quantum, maxGroupFacts-g.facts), e.maxGroup-g.bound)
		if len(g.works) == from {
			break
		}
		for _, w := range g.works[from:] {
			e.admit(g, w)
		}
		some = true
	}
	if some {
		e.metrics.decide.Observe(time.Since(start).Seconds())
	}
	return some
}

// admit judges one call's facts into the group, or refuses the call whole.
func (e *Engine) admit(g *group, w *work) {
	g.facts += w.cost()
	if err := e.canDecide(g, w.bound); err != nil {
		w.err = err
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case w.probe:
		// It came through the queue, had the lock, and goes on to the writer.
	case w.update != nil:
		e.decideUpdate(g, w)
	case w.imported != nil:
		e.decideImport(g, w)
	default:
		g.bound += w.bound
		e.decideFacts(g, w)
	}
}

// canDecide refuses before anything is judged when the group could not be written, or when what is derived falls too
// far behind.
func (e *Engine) canDecide(g *group, bound int) error {
	if err := e.journal.Reserve(e.inFlight() + maxSectionOverhead*(len(g.sections)+1) + g.bound + bound); err != nil {
		return e.refuseSpace(err, bound)
	}
	if e.index.Waiting() > e.options.IndexBacklog || e.cells.dirty > refuseDirty*e.cells.most ||
		len(e.days.dirty) > refuseDirtyDays {
		return e.errBehind()
	}
	return nil
}

// errBehind names what keeps the indexes from their disk, if that is known.
func (e *Engine) errBehind() error {
	if err := e.index.Stats().FlushError; err != nil {
		return problem.Wrap(problem.Busy, err, "the indexes on disk are behind: %s, and try again",
			journal.Remedy(err)).Retry(time.Second)
	}
	return problem.New(problem.Busy, "the indexes on disk are behind: try again, and look at the disk if this goes "+
		"on").Retry(time.Second)
}

// refuseSpace says why nothing can be decided. A batch that would fit alone is only early. A journal that will take
// nothing more, because a sync failed beside the committer, ends the process.
func (e *Engine) refuseSpace(err error, bound int) error {
	switch {
	case errors.Is(err, journal.ErrTooLarge) && bound+maxSectionOverhead <= e.journal.MaxPayload():
		return errBusy()
	case errors.Is(err, journal.ErrTooLarge):
		return problem.Wrap(problem.TooLarge, err, "the batch does not fit one commit: send smaller ones")
	case errors.Is(err, journal.ErrClosed):
		return errClosed()
	case errors.Is(err, journal.ErrNoSpace):
		return problem.Wrap(problem.Unavailable, err,
			"the journal cannot grow: nothing was recorded; %s, and try again",
			journal.Remedy(err)).Retry(5 * time.Second)
	}
	e.fail(err)
	return e.errFailed()
}

// decideFacts judges a batch in order. Engine.mu is held.
func (e *Engine) decideFacts(g *group, w *work) {
	b := w.book
	if w.err = b.resident.CheckKeptHere(); w.err != nil {
		return
	}
	if w.catalog != b.resident.Catalog || w.thresholds != b.resident.Thresholds {
		if w.err = e.prepareAgain(g, w); w.err != nil {
			return
		}
	}
	s := g.sectionFor(e, b)
	if len(w.facts) >= warmFrom {
		e.warmth += e.cells.warm(w.facts)
		for i := range w.facts {
			e.warmth += e.index.Warm(w.facts[i].hash)
		}
	}
	h := &e.judging
	*h = history{e: e, b: b, at: w.epoch, hash: h.hash, fetched: &w.fetched, plans: &w.plans,
		targets: w.targets}
	if w.atomic && w.refused(h, s) {
		return
	}
	alerts := 0
	for i := range w.facts {
		f := &w.facts[i]
		h.fact = f
		e.cells.release()
		row := s.slot()
		v := usage.Judge(h, &f.Fact, s.first+uint64(len(s.rows)), s.at, row)
		w.verdicts[i] = v
		var err error
		switch {
		case v.Kept():
			s.keep(w.by, row)
			e.index.Insert(keyindex.Entry{Hash: f.hash, Check: f.check, Seq: v.Seq})
			err = e.chain(s, h, row)
			if err == nil && w.thresholds > 0 {
				var n int
				n, err = e.alert(s, h, row, quota.MaxAlerts-alerts)
				alerts += n
			}
		case w.atomic && v.Refused():
			err = v.Problem // the rehearsal read the same and found nothing wrong
		}
		if err != nil {
			w.err = e.halfDecided(err) // judging brought all that they read into memory
			return
		}
	}
	e.touched(g, s)
}

// refused reports whether an atomic batch must leave nothing behind. Engine.mu is held.
func (w *work) refused(h *history, s *sectionBuild) bool {
	fact := func(i int) *usage.Fact {
		h.e.cells.release() // a rehearsal works on copies
		h.fact = &w.facts[i]
		return &h.fact.Fact
	}
	var refused bool
	refused, w.err = usage.Rehearse(h, fact, s.first+uint64(len(s.rows)), s.at, w.verdicts)
	return refused || w.err != nil
}

// warmFrom is how many facts a batch must have for loading ahead to pay.
const warmFrom = 8

// prepareAgain judges the batch's shape by the meters as they are now: they changed while it waited. Engine.mu is held.
func (e *Engine) prepareAgain(g *group, w *work) error {
	g.bound -= w.bound
	if err := e.prepareWith(w, e.scratch(), w.book.resident); err != nil {
		return err
	}
	if err := e.canDecide(g, w.bound); err != nil {
		return err
	}
	g.bound += w.bound
	return nil
}

// touched notes that the group changed the section's book. Engine.mu is held.
func (e *Engine) touched(g *group, s *sectionBuild) {
	if len(s.rows) == 0 {
		return
	}
	b := s.book
	b.seq = s.first + uint64(len(s.rows)) - 1
	b.clock = s.at
	b.undurable = g
	e.notes[0].heads[b] = struct{}{}
}

// chain links a kept row's outcomes to the sections that touched their counters before.
func (e *Engine) chain(s *sectionBuild, h *history, row *usage.Row) error {
	for i := range row.Outcomes {
		c := h.last
		if len(row.Outcomes) > 1 {
			var err error
			if c, err = e.cell(s.book, usage.CounterID{Meter: row.Outcomes[i].Meter, Customer: row.Customer,
				Month: row.Month()}, hashCustomer(row.Customer)); err != nil {
				return err
			}
		}
		s.links = append(s.links, c.link(s.first))
		e.use(s.book, row.Outcomes[i].Meter)
	}
	if row.IsCorrection() {
		e.noteCorrection(s.book, row, s.rows[len(s.rows)-1].Seq)
	}
	return nil
}

// link moves the cell on to a section and returns where it was before.
func (c *cell) link(first uint64) link {
	if c.Section == first {
		return linkSame
	}
	c.prev, c.Section, c.changed = c.Section, first, true
	return linkTo(first, c.prev)
}

// seal ends the group: sections without rows vanish, and the next group makes its own.
func (e *Engine) seal(g *group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := g.sections[:0]
	for _, s := range g.sections {
		s.book.section = nil
		if len(s.rows) == 0 {
			s.release()
			continue
		}
		s.resident = s.book.resident
		s.place.Rows = len(s.rows)
		kept = append(kept, s)
	}
	g.sections = kept
	e.flight.Store(int64(g.bound + maxSectionOverhead*len(g.sections)))
}

func (e *Engine) inFlight() int { return int(e.flight.Load()) }

// writeLoop writes one group after the other.
func (e *Engine) writeLoop() {
	defer close(e.toAnswer)
	for g := range e.toWrite {
		// A group that was decided while something failed may hold half of a call: it is never written.
		if e.failure.Load() != nil || len(g.sections) > 0 && !e.write(g) {
			e.abandon(g)
			return
		}
		e.flight.Store(0)
		close(g.done)
		e.followers.bell.Ring()
		e.toAnswer <- g
		e.idle <- struct{}{}
	}
}

// write makes the group durable. It reports false when that failed, which ends the engine.
func (e *Engine) write(g *group) bool {
	start := time.Now()
	w := &e.writer
	buf := append(w.buf[:0], make([]byte, journal.HeaderSize)...)
	buf = append(buf, recordVersion)
	for _, s := range g.sections {
		s.place.Offset = uint32(len(buf) - journal.HeaderSize)
		buf = w.section(buf, &s.section)
	}
	w.refs.forget()
	w.buf = buf
	e.metrics.encode.Observe(time.Since(start).Seconds())
	position, next, err := e.journal.AppendRecord(buf)
	if err != nil {
		return e.fail(err)
	}
	// The sync is begun here and the hashing elsewhere: a goroutine may wait for a processor, the disk should not.
	hashed := make(chan []grown, 1)
	go func() { hashed <- e.hash(g) }()
	begin := time.Now()
	err = e.journal.Sync()
	e.metrics.sync.Observe(time.Since(begin).Seconds())
	trees := <-hashed
	if err != nil {
		return e.fail(err)
	}
	for i, s := range g.sections {
		s.place.Position = position
		s.book.addPlace(s.place)
		s.book.tiles.add(trees[i].tiles)
		e.tiles.Add(int64(len(trees[i].tiles)))
		s.book.published.Store(trees[i].published)
	}
	e.publishBooks(g)
	e.durable.Store(pack(next))
	e.slicer.advance(len(buf))
	e.metrics.group(g, len(buf))
	return true
}

// publishBooks lets everyone find the tenants that the group created.
func (e *Engine) publishBooks(g *group) {
	for _, s := range g.sections {
		if s.first == 1 {
			e.books.Store(s.book.id, s.book)
		}
	}
}

// answerLoop wakes the callers, so that the writer need not.
func (e *Engine) answerLoop() {
	for g := range e.toAnswer {
		for _, w := range g.works {
			w.done <- struct{}{}
		}
		for _, s := range g.sections {
			s.release()
		}
		g.works, g.sections = nil, nil // a book remembers its last group, not the requests that were in it
	}
}

// drain waits until nothing is on its way to the disk. Only the decider calls it.
func (e *Engine) drain() {
	select {
	case <-e.idle:
		e.idle <- struct{}{}
	case <-e.failed:
		// Nothing will be idle again; what was asked for cannot be answered either way.
	}
}

// fail ends the engine: what memory holds is no longer what the disk holds.
func (e *Engine) fail(err error) bool {
	if e.failure.CompareAndSwap(nil, &failure{err}) {
		close(e.failed)
		e.fatal(err)
	}
	return false
}

// abandon answers those who wait that their outcome is unknown, now and from now on.
func (e *Engine) abandon(g *group) {
	e.queue.close()
	for {
		for _, w := range g.works {
			w.err = e.errFailed()
			w.done <- struct{}{}
		}
		e.idle <- struct{}{}
		var ok bool
		if g, ok = <-e.toWrite; !ok {
			return
		}
	}
}

func (e *Engine) errFailed() error {
	return problem.Wrap(problem.Unavailable, e.failure.Load().err,
		"the store failed: whether this was recorded is unknown; send it again after the restart").
		Retry(5 * time.Second)
}

// batchBound is the largest encoding of a batch.
func batchBound(facts []prepared) int {
	n := 0
	for i := range facts {
		f := &facts[i]
		if f.Refusal != nil {
			continue
		}
		v := f.Event
		n += maxRowOverhead + len(f.Key.Name) + len(v.ID) + len(v.Type) + len(v.Customer) + len(v.Resource) +
			len(v.Properties) + len(v.Corrects) + len(v.Reason)
		if v.Corrects != "" {
			n += maxInherited
		}
		feeds := f.Feeds()
		n += maxOutcome * len(feeds)
		for j := range feeds {
			n += len(feeds[j].Member)
		}
	}
	return n
}

// maxInherited bounds what a correction takes from its target: customer, resource and a member of a unique meter.
const maxInherited = 2*usage.MaxName + usage.MaxProperties + 16

// changeOverhead bounds what the encoding of a change adds to its strings. Nobody brought it, so it is a run of its
// own.
const changeOverhead = 1 + 9*5 + 2 + maxRunOverhead

// changeBound is the largest encoding of change rows.
func changeBound(rows []ledger.Row) int {
	n := 0
	for i := range rows {
		c := rows[i].Change
		n += changeOverhead + len(c.Type) + len(c.Source) + len(c.Actor) + len(c.EntityType) + len(c.EntityID) +
			len(c.Payload)
		n += len(c.State.Kind) + len(c.State.ID) + len(c.State.Data)
	}
	return n
}
