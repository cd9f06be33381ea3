package storetest

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// everything is the hint of a scan that wants all rows.
var everything = store.RowHint{Changes: true, Events: true}

// readRows copies the rows above a number, going on wherever the store chose to pause.
func readRows(t TB, v store.View, after uint64, hint store.RowHint) []ledger.Row {
	t.Helper()
	var out []ledger.Row
	for {
		seen := after
		last, end, err := v.Rows(after, hint, func(r *ledger.Row) bool {
			if r.Seq <= seen {
				t.Errorf("rows after %d: row %d comes after row %d", after, r.Seq, seen)
			}
			seen = r.Seq
			out = append(out, cloneRow(r))
			return true
		})
		switch {
		case err != nil:
			t.Fatalf("rows after %d: %v", after, err)
		case end:
			return out
		case last <= after || last < seen:
			t.Fatalf("rows after %d: stopped at row %d after showing row %d, so a reader could not go on", after, last, seen)
		}
		after = last
	}
}

// cloneRow gives a row memory of its own: a store may reuse what it shows.
func cloneRow(r *ledger.Row) ledger.Row {
	out := *r
	if r.Event != nil {
		e := *r.Event
		for _, s := range []*string{&e.ID, &e.Meter, &e.Type, &e.Customer, &e.Resource, &e.Properties, &e.Corrects, &e.Reason, &e.Key.Name} {
			*s = strings.Clone(*s)
		}
		e.Outcomes = slices.Clone(r.Event.Outcomes)
		for i := range e.Outcomes {
			e.Outcomes[i].Member = strings.Clone(e.Outcomes[i].Member)
		}
		out.Event = &e
	}
	if r.Change != nil {
		c := *r.Change
		for _, s := range []*string{&c.Type, &c.Source, &c.Actor, &c.EntityType, &c.EntityID, &c.Payload} {
			*s = strings.Clone(*s)
		}
		c.State.Kind, c.State.ID = strings.Clone(c.State.Kind), strings.Clone(c.State.ID)
		c.State.Data = bytes.Clone(c.State.Data)
		out.Change = &c
	}
	return out
}

// corrections lists the rows that correct each key.
func corrections(rows []ledger.Row) map[usage.Key][]ledger.Row {
	out := map[usage.Key][]ledger.Row{}
	for _, r := range rows {
		if r.Event != nil && r.Event.IsCorrection() {
			k := usage.KeyOfID(r.Event.Corrects)
			out[k] = append(out[k], r)
		}
	}
	return out
}
