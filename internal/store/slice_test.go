package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Given many times more rows than a gatherer holds, of any customers and in any order, then each is handed on once,
// in a piece of its customer, with its own values; and no more are held than the bound says.
func TestAGathererLosesAndDoublesNothing(t *testing.T) {
	for _, limit := range []int{1, 2, 7, 64} {
		rng := rand.New(rand.NewPCG(1, uint64(limit)))
		var want, got []string
		pieces := 0
		q := SliceQuery{Meter: 1, To: calendar.MaxMicros, Wants: WantKeys | WantResources}
		g := NewGatherer(q, func(s *Slice) error {
			if pieces++; s.Len() == 0 || s.Len() > limit {
				t.Errorf("a piece of %d rows, the bound is %d", s.Len(), limit)
			}
			for i := range s.Seq {
				corrects := ""
				if s.Corrects != nil {
					corrects = s.Corrects[i]
				}
				got = append(got,
					fmt.Sprint(s.Customer, s.Seq[i], s.Time[i], s.Value[i], s.Key[i].Name, s.Resource[i], corrects))
			}
			return nil
		})
		g.limit = limit
		for seq := uint64(1); seq <= 1000; seq++ {
			e := &usage.Row{Event: usage.Event{
				Customer: fmt.Sprint("c", rng.IntN(5)), Resource: fmt.Sprint("r", seq),
				Time: calendar.Micros(rng.Int64N(1e9)),
			}, Key: usage.Key{Space: usage.ClientSpace, Name: fmt.Sprint("k", seq)}}
			if rng.IntN(10) == 0 {
				e.Corrects = fmt.Sprint("k", seq-1)
			}
			value := amount.FromInt(int64(seq))
			e.Outcomes = []usage.Outcome{{Meter: uint32(1 + rng.IntN(2)), Value: value}}
			if e.Outcomes[0].Meter == q.Meter {
				want = append(want, fmt.Sprint(e.Customer, seq, e.Time, value, e.Key.Name, e.Resource, e.Corrects))
			}
			if err := g.Add(&ledger.Row{Seq: seq, Event: e}); err != nil {
				t.Fatal(err)
			}
			if g.rows >= limit {
				t.Fatalf("%d rows are held, the bound is %d", g.rows, limit)
			}
		}
		if err := g.Flush(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("bound %d: %d rows, want %d", limit, len(got), len(want))
		}
		if pieces < len(want)/limit {
			t.Errorf("bound %d: only %d pieces", limit, pieces)
		}
	}
}
