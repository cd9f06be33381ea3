package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/slice"
)

// The slicer carries what the journal gained into slices, merges them and fills holes, one thing at a time, beside the
// committer. It is never needed: what is not in a slice yet is read from the journal.

const (
	// defaultSliceBytes is how much journal is left for readers to scan: some thirty thousand facts, a few
	// milliseconds.
	defaultSliceBytes = 1 << 20
	// batchBytes and, unless Options.SliceRows does, batchRows bound what is sorted at once in memory.
	batchBytes = 64 << 20
	batchRows  = 256 << 10

	// retryAfter is how long the slicer waits after a failure, of a full disk for example.
	retryAfter = 5 * time.Second
)

type slicer struct {
	e     *Engine
	set   *slice.Set
	batch slice.Batch
	wake  chan struct{} // holds a token when there may be something to do
	stop  chan struct{}

	unwoken int64 // bytes since the last wake; the writer's

	// working is held while slices are made, and by Prune, which changes what they are made of.
	working sync.Mutex

	// Of the loop.
	books   map[uint32]*book
	heads   []sectionHead
	decoder decoder
	pacer   pacer

	mu      sync.Mutex // guards what follows
	trouble error      // why the last thing failed
	waiting []chan error
}

// openSlices opens the slices, unless they are switched off.
func (e *Engine) openSlices() error {
	o := e.options
	if o.NoSlices {
		return nil
	}
	dir := o.FS.PathJoin(o.Dir, slicesDir)
	if err := makeDir(o.FS, dir); err != nil {
		return fmt.Errorf("make directory of slices: %w", err)
	}
	set, err := slice.Open(slice.Options{FS: o.FS, Dir: dir, StoreID: e.id, Damaged: o.Damaged})
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	e.slicer = &slicer{e: e, set: set, wake: make(chan struct{}, 1), stop: stop, pacer: pacer{e: e, stop: stop}}
	return nil
}

// advance takes note that so many more bytes of the journal are durable.
func (s *slicer) advance(bytes int) {
	if s == nil {
		return
	}
	if s.unwoken += int64(bytes); s.unwoken >= s.e.options.SliceBytes {
		s.unwoken = 0
		s.nudge()
	}
}

func (s *slicer) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// loop runs until the engine closes or fails.
func (s *slicer) loop() {
	for {
		did, err := s.step()
		if errors.Is(err, slice.ErrStopped) {
			return
		}
		s.note(err)
		if did {
			continue
		}
		s.batch = slice.Batch{} // memory that is not needed while nothing comes
		retry := time.NewTimer(retryAfter)
		if err == nil {
			retry.Stop()
		}
		select {
		case <-retry.C:
		case <-s.wake:
		case <-s.stop:
			return
		case <-s.e.failed:
			return
		}
		retry.Stop()
	}
}

// step does one thing, the most urgent, and reports whether there was any. Those who wait learn when nothing is left,
// or why it does not go on.
func (s *slicer) step() (did bool, err error) {
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	defer func() {
		if !did || err != nil {
			s.answer(waiting, err)
		}
	}()
	s.working.Lock()
	defer s.working.Unlock()
	s.pacer.begin()
	if !s.e.hasRoom() {
		return false, errors.New("slices wait for space on the disk")
	}
	for _, do := range [...]func(all bool) (bool, error){s.add, s.fill, s.merge} {
		if did, err := do(len(waiting) > 0); did || err != nil {
			return did && err == nil, err
		}
	}
	return false, nil
}

func (s *slicer) answer(waiting []chan error, err error) {
	for _, w := range waiting {
		w <- err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = s.waiting[len(waiting):]
}

// note remembers why things do not go on.
func (s *slicer) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = err
}

// settle waits until everything that was durable when it was called is in slices and nothing is left to merge.
func (s *slicer) settle(ctx context.Context) error {
	done := make(chan error, 1)
	s.mu.Lock()
	s.waiting = append(s.waiting, done)
	s.mu.Unlock()
	s.nudge()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.e.failed:
		return s.e.errFailed()
	case <-s.stop:
		return errClosed()
	}
}

// behind is how many bytes of the journal are durable and in no slice.
func (s *slicer) behind() int64 {
	return s.e.journal.SizeBefore(unpack(s.e.durable.Load())) - s.e.journal.SizeBefore(s.set.Covered())
}

// add slices what the journal gained, if it is enough.
func (s *slicer) add(all bool) (bool, error) {
	from, to := s.set.Covered(), unpack(s.e.durable.Load())
	if !from.Less(to) || !all && s.behind() < s.e.options.SliceBytes {
		return false, nil
	}
	reached, err := s.gather(slice.Span{From: from, To: to}, nil)
	if err != nil {
		return false, fmt.Errorf("slice the journal from %s on: %w", from, err)
	}
	if err := s.set.Add(&s.batch, reached, s.pacer.pace); err != nil {
		return false, err
	}
	return true, nil
}

// fill makes a part of what was lost again.
func (s *slicer) fill(bool) (bool, error) {
	n := s.set.Acquire()
	defer n.Release()
	if len(n.Holes) == 0 {
		return false, nil
	}
	h := n.Holes[0]
	reached, err := s.gather(h.Span, &h.Month)
	if err != nil {
		return false, fmt.Errorf("slice the journal from %s on again: %w", h.From, err)
	}
	return true, s.set.Fill(&s.batch, h, reached, s.pacer.pace)
}

// merge makes one file of several. A large merge takes long, and what comes in meanwhile is sliced beside it.
func (s *slicer) merge(all bool) (bool, error) {
	var inner error
	did, err := s.set.Merge(func() bool {
		if inner == nil {
			_, inner = s.add(all)
		}
		return inner == nil && s.pacer.pace()
	})
	if inner != nil {
		return false, inner
	}
	var damage *slice.Damage
	if errors.As(err, &damage) {
		s.set.Report(err)
		return true, nil // there is a hole to fill now
	}
	return did, err
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// gather fills the batch with rows of a span, of one month if that is given, and returns how far it came.
func (s *slicer) gather(span slice.Span, only *calendar.Month) (reached journal.Position, err error) {
	s.batch.Reset()
	err = s.e.journal.Scan(span.From, span.To, func(_, next journal.Position, payload []byte) error {
		if err := s.take(payload, only); err != nil {
			return err
		}
		if !s.pacer.pace() {
			return slice.ErrStopped
		}
		if reached = next; s.batch.Len() >= s.e.options.SliceRows || s.batch.Bytes() >= batchBytes {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return reached, nil
	}
	return span.To, err
}

func (s *slicer) take(payload []byte, only *calendar.Month) (err error) {
	if s.heads, err = readHeads(payload, s.heads); err != nil {
		return err
	}
	for _, head := range s.heads {
		b := s.book(head.tenant)
		if b == nil {
			return fmt.Errorf("tenant number %d is not in the state: run `tallystick rebuild`", head.tenant)
		}
		set := b.published.Load().resident
		section, err := s.decoder.decode(head, set)
		if err != nil {
			return err
		}
		slug := func(number uint32) string { return set.Catalog.Number(number).Slug }
		for i := range section.rows {
			r := &section.rows[i]
			if r.Kind() == ledger.EventRow && (only == nil || r.Event.Month() == *only) {
				s.batch.Add(b.id, &section.rows[i], slug)
			}
		}
	}
	return nil
}

func (s *slicer) book(number uint32) *book {
	if s.books[number] == nil {
		s.books = s.e.booksByNumber()
	}
	return s.books[number]
}
