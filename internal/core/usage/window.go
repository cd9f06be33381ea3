package usage

import (
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// Grid says how usage is cut, grouped and folded, and how much of it may be held at once.
type Grid struct {
	Cuts        []calendar.Micros // window i is [Cuts[i], Cuts[i+1])
	Aggregation meter.Aggregation
	GroupBy     []Dimension
	Where       []Condition // beyond the customer, which whoever reads the rows has chosen already

	MaxCells     int // windows of groups
	MaxMembers   int // distinct members of a unique meter, over all cells
	MaxCorrected int // facts with corrections
}

// ErrTooMany is returned when a bound of the grid is reached; the error says which.
var ErrTooMany = errors.New("too much for one answer")

// Windows folds rows into the cells of a grid, one for each window of each group that has any.
//
// All rows are folded, whether they were on time or not, and facts count with what their corrections left of them,
// exactly as in the fold of all rows of a counter. A correction has the customer, resource and time of its target, so
// it falls into the target's cell. That is enough for sum, count and avg: the change is added, and a fact of which
// nothing is left is taken off the count in the end. Other aggregations, and whatever looks at properties, which
// corrections do not have, must know the correction when they meet the fact. Corrections are rare, so Windows first
// hopes for none and asks for a second pass over the same rows if there were some.
type Windows struct {
	grid    Grid
	cells   cells
	groups  groups
	rows    []uint32 // scratch: the group of each row of a piece
	members memberTable

	corrections map[Key]remainder // by the fact that they correct
	second      bool

	// The window of the row before: times of a piece mostly rise, and rows of one window follow one another.
	window     uint32
	begin, end calendar.Micros
}

// remainder is what corrections have left of a fact.
type remainder struct {
	value amount.Amount
	cell  uint32 // the fact's, where corrections are folded without it
}

// NewWindows makes an empty grid.
func NewWindows(g Grid) *Windows {
	return &Windows{grid: g, cells: newCells(g.MaxCells), groups: newGroups(g.GroupBy, g.Where),
		corrections: map[Key]remainder{}}
}

// Needs says which optional columns the pieces must have.
func (w *Windows) Needs() (keys, resources, properties, members bool) {
	resources, properties = w.groups.needs()
	return w.second || w.grid.Aggregation == meter.Last, resources, properties, w.grid.Aggregation == meter.Unique
}

// subtracts reports whether a correction can be folded without its target.
func (w *Windows) subtracts() bool {
	if _, properties := w.groups.needs(); properties {
		return false
	}
	switch w.grid.Aggregation {
	case meter.Sum, meter.Count, meter.Avg:
		return true
	}
	return false
}

// Again ends a pass. When it returns true all pieces must be added once more, now with what Needs says.
func (w *Windows) Again() bool {
	if w.second || len(w.corrections) == 0 {
		return false
	}
	if w.subtracts() {
		for _, left := range w.corrections {
			if left.value.IsZero() {
				w.cells.get(left.cell).count--
			}
		}
		return false
	}
	w.second = true
	w.cells, w.members = newCells(w.grid.MaxCells), memberTable{}
	return true
}

// Add folds one piece, whose times lie within the grid. Nothing of it is kept. Errors: ErrTooMany, Overflow.
func (w *Windows) Add(p *Piece) error {
	whole, byRow := w.groups.of(p, &w.rows)
	step := w.run
	if w.second {
		step = w.fact
	}
	for i, n := 0, len(p.Time); i < n; {
		group := whole
		if byRow {
			group = w.rows[i]
		}
		if p.corrects(i) != "" {
			if err := w.correct(p, i, group); err != nil {
				return err
			}
			i++
			continue
		}
		if group == outside {
			i++
			continue
		}
		to, err := step(p, i, group, byRow)
		if err != nil {
			return err
		}
		i = to
	}
	return nil
}

// run folds the rows from i on that fall into one cell, and returns where they end.
func (w *Windows) run(p *Piece, i int, group uint32, byRow bool) (int, error) {
	at, err := w.cell(group, p.Time[i])
	if err != nil {
		return 0, err
	}
	times, to := p.Time, i+1
	if p.Corrects == nil && !byRow {
		for to < len(times) && times[to] >= w.begin && times[to] < w.end {
			to++
		}
	} else {
		for to < len(times) && times[to] >= w.begin && times[to] < w.end && p.corrects(to) == "" &&
			(!byRow || w.rows[to] == group) {
			to++
		}
	}
	return to, w.fold(at, p, i, to)
}

// fold takes the facts [i, to) into a cell as they are.
func (w *Windows) fold(at uint32, p *Piece, i, to int) error {
	c := w.cells.get(at)
	first := c.count == 0
	c.count += int64(to - i)
	switch w.grid.Aggregation {
	case meter.Sum, meter.Avg:
		sum := c.value
		for _, v := range p.Value[i:to] {
			var ok bool
			if sum, ok = sum.Add(v); !ok {
				return w.overflow(c)
			}
		}
		c.value = sum
	case meter.Min, meter.Max:
		if first {
			c.value = p.Value[i]
		}
		extreme(&c.value, p.Value[i:to], w.grid.Aggregation)
	case meter.Last:
		best := i
		for j := i + 1; j < to; j++ {
			if later(p.Time[j], p.Key[j], p.Time[best], p.Key[best]) {
				best = j
			}
		}
		w.cells.last(at, p.Value[best], p.Time[best], p.Key[best], first)
	case meter.Unique:
		return w.join(at, p.Member[i:to])
	}
	return nil
}

func extreme(best *amount.Amount, values []amount.Amount, a meter.Aggregation) {
	want := 1
	if a == meter.Min {
		want = -1
	}
	for _, v := range values {
		if v.Cmp(*best) == want {
			*best = v
		}
	}
}

// join counts members that the cell has not seen.
func (w *Windows) join(at uint32, names []string) error {
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			continue
		}
		if !w.members.add(at, name) {
			continue
		}
		if w.members.n > w.grid.MaxMembers {
			return fmt.Errorf("%w: more than %d distinct members", ErrTooMany, w.grid.MaxMembers)
		}
		c := w.cells.get(at)
		c.value, _ = c.value.Add(amount.One) // as many as the bound of members fit
	}
	return nil
}

// AddHour folds an hour that was added up before, of one customer or, where the grid does not ask for customers, of all
// of them. It lies within one window of the grid, is not lost, and must be added again in a second pass. Errors:
// ErrTooMany, Overflow.
func (w *Windows) AddHour(customer string, begin calendar.Micros, h *Hour) error {
	if h.Count == 0 {
		return nil
	}
	at, err := w.cell(w.groups.number(&Piece{Customer: customer}, 0), begin)
	if err != nil {
		return err
	}
	c := w.cells.get(at)
	first := c.count == 0
	c.count += h.Count
	switch w.grid.Aggregation {
	case meter.Sum, meter.Avg:
		var ok bool
		if c.value, ok = c.value.Add(h.Value); !ok {
			return w.overflow(c)
		}
	case meter.Min, meter.Max:
		if first {
			c.value = h.Value
		}
		extreme(&c.value, []amount.Amount{h.Value}, w.grid.Aggregation)
	case meter.Last:
		w.cells.last(at, h.Value, h.last.time, h.last.key, first)
	}
	return nil
}

// correct takes note of a correction, and folds it where that can be done without its target.
func (w *Windows) correct(p *Piece, i int, group uint32) error {
	if w.second {
		return nil
	}
	direct := w.subtracts()
	if direct && group == outside {
		return nil
	}
	k := KeyOfID(p.Corrects[i])
	left, seen := w.corrections[k]
	if !seen {
		if len(w.corrections) == w.grid.MaxCorrected {
			return fmt.Errorf("%w: more than %d corrected events", ErrTooMany, w.grid.MaxCorrected)
		}
		k, left.value = p.target(i), p.Base[i]
	}
	var ok bool
	if left.value, ok = left.value.Add(p.Value[i]); !ok {
		return problem.New(problem.Overflow, "what corrections left of event %s does not fit", quoted(k.ID()))
	}
	if direct {
		at, err := w.cell(group, p.Time[i])
		if err != nil {
			return err
		}
		left.cell = at
		if w.grid.Aggregation != meter.Count {
			cell := w.cells.get(at)
			if cell.value, ok = cell.value.Add(p.Value[i]); !ok {
				return w.overflow(cell)
			}
		}
	}
	w.corrections[k] = left
	return nil
}

// fact folds one fact of the second pass with what corrections left of it.
func (w *Windows) fact(p *Piece, i int, group uint32, _ bool) (int, error) {
	left, corrected := w.corrections[p.Key[i]]
	if corrected && left.value.Sign() <= 0 {
		return i + 1, nil
	}
	at, err := w.cell(group, p.Time[i])
	if err != nil {
		return 0, err
	}
	if !corrected {
		return i + 1, w.fold(at, p, i, i+1)
	}
	one := Piece{Time: p.Time[i : i+1], Value: []amount.Amount{left.value}, Key: p.Key[i : i+1]}
	if w.grid.Aggregation == meter.Unique {
		one.Member = p.Member[i : i+1]
	}
	return i + 1, w.fold(at, &one, 0, 1)
}

// cell finds the cell of a group at a time, or makes it.
func (w *Windows) cell(group uint32, t calendar.Micros) (uint32, error) {
	if t < w.begin || t >= w.end {
		w.seek(t)
	}
	return w.cells.find(group, w.window)
}

// seek finds the window of a time, which mostly is the next one.
func (w *Windows) seek(t calendar.Micros) {
	cuts := w.grid.Cuts
	low, high := 0, len(cuts)-1
	if next := int(w.window) + 1; next < high && t >= cuts[next] && t < cuts[next+1] {
		low, high = next, next+1
	}
	for high-low > 1 {
		if middle := int(uint(low+high) / 2); t >= cuts[middle] {
			low = middle
		} else {
			high = middle
		}
	}
	w.window, w.begin, w.end = uint32(low), cuts[low], cuts[low+1]
}

func (w *Windows) overflow(c *cell) error {
	return problem.New(problem.Overflow,
		"the usage of the window that begins at %s does not fit 26 digits: group it, or cut it finer",
		w.grid.Cuts[c.window])
}
