package engine

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/resident"
)

const (
	journalDir = "journal"
	indexDir   = "keys"
	stateDir   = "state"
	slicesDir  = "slices"
	// followersDir is not derived from the journal.
	followersDir = "followers"

	defaultCheckpointBytes = 64 << 20
	defaultBacklogTables   = 5
	defaultCloseWithin     = 10 * time.Second
)

// open opens the files without looking into the journal's records.
func open(o *Options) (*Engine, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	if o.IndexBacklog == 0 {
		o.IndexBacklog = defaultBacklogTables * max(o.IndexEntries, keyindex.DefaultMemEntries)
	}
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = defaultCheckpointBytes
	}
	if o.SliceBytes == 0 {
		o.SliceBytes = defaultSliceBytes
	}
	if o.SliceRows == 0 {
		o.SliceRows = batchRows
	}
	if o.CloseWithin == 0 {
		o.CloseWithin = defaultCloseWithin
	}
	if o.CounterBytes == 0 {
		o.CounterBytes = maxCounterBytes
	}
	if o.dirty == 0 {
		o.dirty = maxDirty
	}
	if o.listing == nil {
		o.listing = func() {}
	}
	if o.open == 0 {
		o.open = maxOpen
	}
	if o.recall == 0 {
		o.recall = recallBytes
	}
	if o.Kinds == nil {
		o.Kinds = kinds.All()
	}
	e := &Engine{
		now: o.Now, fatal: o.Fatal, options: *o, byID: map[string]*book{}, nextNumber: 1,
		cells: newCells(o.CounterBytes, o.dirty, o.open), tallies: newTallies(maxTallies),
		days:      days{limit: maxDays},
		notes:     [2]*notes{newNotes(), newNotes()},
		reindexer: state.NewReindexer(o.Kinds), queue: newQueue(), reads: newReads(),
		toWrite: make(chan *group, 1), toAnswer: make(chan *group, 4), idle: make(chan struct{}, 1),
		failed: make(chan struct{}), checkpoints: make(chan *checkpoint, 1), examined: make(chan struct{}, 1),
	}
	e.recall.limit = o.recall
	e.idle <- struct{}{} // replaying may drain before there is a writer
	if err := e.openFiles(); err != nil {
		return nil, errors.Join(err, e.release())
	}
	return e, nil
}

func (e *Engine) openFiles() (err error) {
	o := e.options
	if err := makeDir(o.FS, o.Dir); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	if !o.locked {
		if e.lock, err = lock(o.FS, o.Dir); err != nil {
			return err
		}
	}
	if e.id, err = identify(o.FS, o.Dir); err != nil {
		return err
	}
	if err := e.openFollowers(); err != nil {
		return err
	}
	e.journal, err = journal.Open(journal.Options{
		FS: o.FS, Dir: o.FS.PathJoin(o.Dir, journalDir), SegmentBytes: o.SegmentBytes, StoreID: e.id,
	})
	if err != nil {
		return err
	}
	if e.state, err = e.openState(); err != nil {
		return err
	}
	e.index, err = keyindex.Open(keyindex.Options{
		FS: o.FS, Dir: o.FS.PathJoin(o.Dir, indexDir), MemEntries: o.IndexEntries, StoreID: e.id,
	})
	if err != nil {
		return err
	}
	if err := e.openSlices(); err != nil {
		return err
	}
	e.metrics = newMetrics(o.Metrics, e)
	return nil
}

// openState opens the state. One of an older build is removed: what this build wants of it is made from the journal.
func (e *Engine) openState() (*state.State, error) {
	o := e.options
	options := state.Options{
		FS: o.FS, Dir: o.FS.PathJoin(o.Dir, stateDir), StoreID: e.id,
		Fatal: func(err error) { e.fail(err) }, Reading: o.reading,
	}
	s, err := state.Open(options)
	var version *state.VersionError
	if !errors.As(err, &version) || !version.Older() {
		return s, err
	}
	if err := removeState(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("make the state of an older version again: %w", err)
	}
	return state.Open(options)
}

// lock makes sure that one process alone has the directory open.
func lock(fs vfs.FS, dir string) (io.Closer, error) {
	l, err := fs.Lock(fs.PathJoin(dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be locked: another tallystick most likely has it open: "+
			"stop that one, or choose another directory: %w", dir, err)
	}
	return l, nil
}

// recover brings books, counters and keys to where the journal ends.
func (e *Engine) recover() error {
	if err := e.loadBooks(); err != nil {
		return err
	}
	keys := journal.Position(e.index.Mark())
	from, floor := e.state.Position(), keys
	if keys.Less(from) {
		from, floor = floor, from
	}
	if e.slicer != nil && floor.Less(e.slicer.set.Covered()) {
		floor = e.slicer.set.Covered()
	}
	start := time.Now()
	rows := int64(0)
	progress := e.newProgress(from, e.options.Progress)
	var heads []sectionHead
	h := &history{e: e}
	err := e.journal.Recover(from, floor, func(pos, next journal.Position, payload []byte) (err error) {
		if heads, err = readHeads(payload, heads); err != nil {
			return fmt.Errorf("record at %s: %w", pos, err)
		}
		for _, head := range heads {
			rows += int64(head.rows)
			if err := e.replaySection(h, pos, head, !pos.Less(keys), !pos.Less(e.state.Position())); err != nil {
				return fmt.Errorf("replay rows from %d on of tenant number %d, in the record at %s: %w",
					head.first, head.tenant, pos, err)
			}
		}
		progress.reached(next)
		return e.afterReplayed(next)
	})
	if err != nil {
		return err
	}
	progress.end()
	for _, b := range e.byID {
		if head := b.published.Load().head; head.Tree.Size() != head.Seq {
			return fmt.Errorf("the journal has no more than the first %d of %d rows of the tree of tenant %s: %w",
				head.Tree.Size(), head.Seq, b.id, errRecord)
		}
		e.books.Store(b.id, b)
	}
	e.metrics.replayed(rows, time.Since(start))
	return nil
}

// loadBooks makes the tenants that the state knows.
func (e *Engine) loadBooks() error {
	heads, err := e.state.Heads()
	if err != nil {
		return &state.DamageError{Dir: stateDir, Err: err}
	}
	for _, head := range heads {
		b, err := e.loadBook(&e.state.Reader, head)
		if err != nil {
			return err
		}
		e.byID[b.id] = b
		e.nextNumber = max(e.nextNumber, b.number+1)
	}
	e.byNumber = make([]*book, e.nextNumber)
	for _, b := range e.byID {
		e.byNumber[b.number] = b
	}
	return nil
}

// loadBook makes a tenant as the state has it: of its entities, those of resident kinds. A ledger with a critical kind
// that this build does not know is not opened.
func (e *Engine) loadBook(from *state.Reader, head state.Head) (*book, error) {
	b := newBook(head.Number, head.ID, e.options.Kinds)
	b.seq, b.clock = head.Seq, head.Clock
	critical, err := from.Critical(head.Number)
	if err != nil {
		return nil, &state.DamageError{Dir: stateDir, Err: err}
	}
	for i := range critical {
		if err := e.options.Kinds.Check(&critical[i]); err != nil {
			return nil, fmt.Errorf("open the ledger of %s: %w", head.ID, err)
		}
		b.critical[criticalKind{critical[i].Kind, critical[i].Version}] = true
	}
	if b.resident, err = e.loadResident(from, head.Number); err != nil {
		return nil, fmt.Errorf("open the ledger of %s: %w", head.ID, err)
	}
	used, err := from.UsedMeters(head.Number)
	if err != nil {
		return nil, &state.DamageError{Dir: stateDir, Err: err}
	}
	for _, number := range used {
		b.used[number] = true
	}
	b.published.Store(&published{head: head.Head, resident: b.resident})
	return b, nil
}

// loadResident reads a tenant's entities of resident kinds.
func (e *Engine) loadResident(from *state.Reader, tenant uint32) (*resident.Set, error) {
	var all []entity.Entity
	none := func(string) bool { return false }
	for _, d := range e.options.Kinds.All() {
		if !d.Resident {
			continue
		}
		some, err := from.Entities(tenant, d.Name, store.Page{Limit: math.MaxInt}, none)
		if err != nil {
			return nil, &state.DamageError{Dir: stateDir, Err: err}
		}
		all = append(all, some...)
	}
	return resident.Load(e.options.Kinds, all)
}

// replaySection repeats what a section did to the index, the state, or both.
func (e *Engine) replaySection(h *history, pos journal.Position, head sectionHead, keys, derived bool) error {
	b, err := e.replayedBook(head)
	if err != nil {
		return err
	}
	s, err := e.replayer.decode(head, b.resident)
	if err != nil {
		return err
	}
	if derived && s.first != b.seq+1 {
		return fmt.Errorf("its first row is %d, but the tenant's last was %d", s.first, b.seq)
	}
	place := newPlace(s.first)
	place.Rows, place.Position, place.Offset = s.count(), pos, head.offset
	*h = history{e: e, b: b, hash: h.hash, replaying: &s}
	if derived {
		h.fetched = e.fetchReplayed(b, &s)
	}
	links := s.links
	for i := range s.rows {
		r := &s.rows[i]
		switch r.Kind() {
		case ledger.EntryRow:
			place.Entries = true
			continue
		case ledger.ChangeRow:
			place.Changes = true
			if derived {
				if err := e.replayChange(b, r); err != nil {
					return err
				}
			}
			continue
		case ledger.EventRow:
		}
		notePlace(&place, r.Event)
		if keys {
			e.replayKey(h, b, r)
		}
		switch {
		case derived && s.isArchived(i):
			e.replayArchived(b, r)
		case derived:
			if err := e.replayEvent(h, r, s.first, links[:len(r.Event.Outcomes)]); err != nil {
				return err
			}
		}
		links = links[len(r.Event.Outcomes):]
	}
	if derived {
		return e.replayedSection(b, &s, place)
	}
	return nil
}

// replayChange repeats what a change did. The first of a new tenant names it.
func (e *Engine) replayChange(b *book, r *ledger.Row) error {
	if err := e.applyChange(b, r); err != nil {
		return err
	}
	if b.id == "" {
		e.nameBook(b)
	}
	return nil
}

func (e *Engine) replayKey(h *history, b *book, r *ledger.Row) {
	seed := e.index.Seed()
	e.index.Insert(keyindex.Entry{
		Hash: h.hash.key(seed, b.number, r.Event.Key), Seq: r.Seq,
		Check: h.hash.check(seed, &r.Event.Event, r.Event.Key.Space),
	})
}

func (e *Engine) replayEvent(h *history, r *ledger.Row, first uint64, links []link) error {
	got, err := e.fold(h, r.Event, r.Seq, first, nil)
	if err != nil {
		return err
	}
	if !slices.Equal(got, links) {
		return fmt.Errorf("row %d says that its counters were touched %d before, the state says %d", r.Seq, links, got)
	}
	return nil
}

// fold repeats what a row that was decided before did, and appends the links of its outcomes.
func (e *Engine) fold(h *history, r *usage.Row, seq, first uint64, links []link) ([]link, error) {
	e.cells.release()
	if err := usage.Apply(h, r, seq); err != nil {
		return links, err
	}
	for i := range r.Outcomes {
		id := usage.CounterID{Meter: r.Outcomes[i].Meter, Customer: r.Customer, Month: r.Month()}
		c, err := e.cell(h.b, id, hashCustomer(id.Customer))
		if err != nil {
			return links, err
		}
		links = append(links, c.link(first))
		e.use(h.b, id.Meter)
	}
	if r.IsCorrection() {
		e.noteCorrection(h.b, r, seq)
	}
	return links, nil
}

// replayedBook finds the section's tenant. One that the state does not know yet comes into being with its first
// section.
func (e *Engine) replayedBook(head sectionHead) (*book, error) {
	if int(head.tenant) < len(e.byNumber) {
		if b := e.byNumber[head.tenant]; b != nil {
			return b, nil
		}
	}
	if head.first != 1 || head.tenant == 0 || head.tenant != uint32(len(e.byNumber)) {
		return nil, errors.New("no such tenant")
	}
	b := newBook(head.tenant, "", e.options.Kinds)
	e.byNumber = append(e.byNumber, b)
	e.nextNumber = head.tenant + 1
	return b, nil
}

// nameBook files a new book under the id that its first row gave it.
func (e *Engine) nameBook(b *book) {
	if b.resident.Exists() {
		b.id = b.resident.TenantID()
		e.byID[b.id] = b
	}
}

func (e *Engine) replayedSection(b *book, s *section, place state.Section) (err error) {
	if !b.resident.Exists() {
		return errors.New("the first row of a ledger creates its tenant")
	}
	b.addPlace(place)
	last := b.published.Load().head
	var tiles []tree.Tile
	if last.Tree, tiles, err = e.leaves.regrow(last.Tree, b.resident.TreeKeys, s); err != nil {
		return err
	}
	b.tiles.add(tiles)
	e.tiles.Add(int64(len(tiles)))
	last.Seq, last.Clock = s.first+uint64(s.count())-1, s.at
	b.seq, b.clock = last.Seq, last.Clock
	b.published.Store(&published{head: last, resident: b.resident})
	e.notes[0].heads[b] = struct{}{}
	return nil
}

// afterReplayed keeps memory bounded however long the replay is.
func (e *Engine) afterReplayed(next journal.Position) error {
	if e.index.Full() {
		e.freezeIndex(next)
		if e.index.Waiting() > e.options.IndexBacklog {
			if err := e.index.Flush(); err != nil {
				return err
			}
		}
	}
	if e.cells.dirty >= refuseDirty*e.cells.most || e.notes[0].full() || e.tiles.Load() >= maxTiles ||
		len(e.days.dirty) >= maxDirtyDays {
		return e.save(e.freeze(next))
	}
	return nil
}
