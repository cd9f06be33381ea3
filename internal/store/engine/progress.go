package engine

import "github.com/tallystick/tallystick/internal/store/engine/journal"

// progressStep is how many bytes are read between two reports: often enough for a bar, seldom enough to cost nothing.
const progressStep = 1 << 20

// progress reports how much of the journal was read. A nil report is not called.
type progress struct {
	e        *Engine
	report   func(done, total int64)
	start    int64 // bytes before where reading began
	fixed    int64 // the total, when it does not grow with the journal
	reported int64

	segment uint32 // the one being read
	before  int64  // bytes before that segment
}

func (e *Engine) newProgress(from journal.Position, report func(done, total int64)) progress {
	return progress{e: e, report: report, start: e.journal.SizeBefore(from)}
}

// total is asked for again each time: the journal's end is known only once it was recovered.
func (p *progress) total() int64 {
	if p.fixed > 0 {
		return p.fixed
	}
	return p.e.journal.Size() - p.start
}

// at reports bytes beyond the journal.
func (p *progress) at(done int64) {
	if p.report != nil {
		p.report(min(done, p.total()), p.total())
	}
}

func (p *progress) reached(at journal.Position) {
	if p.report == nil {
		return
	}
	if at.Segment != p.segment {
		p.segment, p.before = at.Segment, p.e.journal.SizeBefore(journal.Position{Segment: at.Segment})
	}
	if done := p.before + int64(at.Offset) - p.start; done-p.reported >= progressStep {
		p.reported = done
		p.report(done, p.total())
	}
}

func (p *progress) end() {
	if p.report != nil {
		p.report(p.total(), p.total())
	}
}
