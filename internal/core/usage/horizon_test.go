package usage_test

import (
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Given a floor, when facts of all ages are sent, then those below it are refused before anything else is asked of
// them, except that a fact whose key is still known is a duplicate; a fact has to say its time, and a correction lies
// where its target does.
func TestTheHorizon(t *testing.T) {
	floor := calendar.FromTime(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	now := floor.Add(14 * 24 * time.Hour)
	calls := &meter.Meter{Number: 1, Slug: "calls", Aggregation: meter.Sum, Lateness: 48 * time.Hour, Future: time.Hour}
	st := newLive([]*meter.Meter{calls})
	prepare := usage.NewPreparer(usage.NewCatalog([32]byte{}, []*meter.Meter{calls}))
	seq := uint64(0)
	send := func(e usage.Event) string {
		t.Helper()
		var f usage.Fact
		prepare.Prepare(&e, &f)
		row := &usage.Row{}
		v := usage.Judge(st, &f, seq+1, now, row)
		if v.Status == usage.Accepted || v.Status == usage.Adjusted {
			seq++
			st.rows[seq], st.keys[v.Key] = row.Clone(), seq
		}
		if v.Problem != nil {
			return string(v.Problem.Code)
		}
		return v.Status.String()
	}
	fact := func(id string, at calendar.Micros) usage.Event {
		return usage.Event{ID: id, Meter: "calls", Customer: "c", Time: at, Quantity: amount.One,
			Given: usage.GivenMeter | usage.GivenCustomer | usage.GivenTime}
	}
	untimed := fact("u", 0)
	untimed.Given &^= usage.GivenTime
	correction := func(id, target string) usage.Event {
		return usage.Event{ID: id, Corrects: target, Reason: "wrong", Quantity: amount.One.Neg(),
			Given: usage.GivenQuantity}
	}
	for _, step := range []struct {
		what string
		e    usage.Event
		want string
	}{
		{"without a horizon, an old fact", fact("old", floor-1), "accepted"},
		{"without a horizon, one without a time", untimed, "accepted"},
		{"", usage.Event{}, ""},
		{"the old fact again, its key is known", fact("old", floor-1), "duplicate"},
		{"the one without a time again", untimed, "duplicate"},
		{"another old fact", fact("older", floor-1), string(problem.BeyondHorizon)},
		{"the known key with another old time", fact("old", floor-2), string(problem.BeyondHorizon)},
		{"the known key with a time above the floor", fact("old", floor), string(problem.Conflict)},
		{"a fact on the floor", fact("edge", floor), "adjusted"},
		{"a correction of the old fact", correction("c1", "old"), string(problem.BeyondHorizon)},
		{"a correction of one above", correction("c2", "edge"), "adjusted"},
	} {
		if step.want == "" {
			st.floor = floor
			continue
		}
		if got := send(step.e); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
	another := untimed
	another.ID = "u2"
	if got := send(another); got != string(problem.Invalid) {
		t.Errorf("a new fact without a time: %s", got)
	}
	st.broken = problem.New(problem.Archived, "its rows have left")
	if got := send(correction("c3", "edge")); got != string(problem.Unavailable) &&
		got != string(problem.BeyondHorizon) {
		t.Errorf("a correction of what is archived: %s", got)
	}
}
