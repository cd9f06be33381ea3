package billing

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// settings are what a replay decides by in place of the meter's own; nil leaves one as it is.
type settings struct {
	Lateness    *time.Duration
	Late        *meter.Late
	Aggregation *meter.Aggregation
}

// over puts settings over others: what they do not say is as before.
func (s settings) over(before settings) settings {
	if s.Lateness == nil {
		s.Lateness = before.Lateness
	}
	if s.Late == nil {
		s.Late = before.Late
	}
	if s.Aggregation == nil {
		s.Aggregation = before.Aggregation
	}
	return s
}

// on gives a meter the settings.
func (s settings) on(m meter.Meter) meter.Meter {
	if s.Lateness != nil {
		m.Lateness = *s.Lateness
	}
	if s.Late != nil {
		m.Late = *s.Late
	}
	if s.Aggregation != nil {
		m.Aggregation = *s.Aggregation
	}
	return m
}

const ownSettings = "own settings"

// String names the settings in the adjustments that come of them.
func (s settings) String() string {
	said := []string{}
	if s.Aggregation != nil {
		said = append(said, "aggregation="+s.Aggregation.String())
	}
	if s.Late != nil {
		said = append(said, "late="+s.Late.String())
	}
	if s.Lateness != nil {
		said = append(said, "lateness="+s.Lateness.String())
	}
	if len(said) == 0 {
		return ownSettings
	}
	return strings.Join(said, " ")
}

// parseSettings reads what String wrote.
func parseSettings(text string) (s settings, err error) {
	if text == ownSettings {
		return s, nil
	}
	for part := range strings.SplitSeq(text, " ") {
		name, value, _ := strings.Cut(part, "=")
		bad := fmt.Errorf("a replay was applied with settings that this build does not know: %q", text)
		switch name {
		case "aggregation":
			a, p := meter.ParseAggregation(value)
			if p != nil {
				return s, bad
			}
			s.Aggregation = &a
		case "late":
			l, p := meter.ParseLate(value)
			if p != nil {
				return s, bad
			}
			s.Late = &l
		case "lateness":
			d, err := time.ParseDuration(value)
			if err != nil {
				return s, bad
			}
			s.Lateness = &d
		default:
			return s, bad
		}
	}
	return s, nil
}

// applied is what earlier replays have done to a counter.
type applied struct {
	amount amount.Amount // all that they added, less what was reverted
	stand  []appliedOnce // those that were not reverted, the last of which is in force
}

type appliedOnce struct {
	adjustment string
	settings   settings
}

// inForce are the settings that the counter's total is by; it reports false when they are the meter's own.
func (a *applied) inForce() (settings, bool) {
	if len(a.stand) == 0 {
		return settings{}, false
	}
	return a.stand[len(a.stand)-1].settings, true
}

// take notes one adjustment.
func (a *applied) take(id string, made *usage.Adjustment) error {
	a.amount, _ = a.amount.Add(made.Amount)
	if made.Reverts != "" {
		for i := range a.stand {
			if a.stand[i].adjustment == made.Reverts {
				a.stand = append(a.stand[:i:i], a.stand[i+1:]...)
				break
			}
		}
		return nil
	}
	by, err := parseSettings(made.Replay)
	if err != nil {
		return fmt.Errorf("adjustment %s: %w", id, err)
	}
	a.stand = append(a.stand, appliedOnce{id, by})
	return nil
}

// note reads what replays have done since it was called last.
func (r *replaying) note(v store.View) error {
	for end := false; !end; {
		var bad error
		last, ended, err := v.Rows(r.seen, store.RowHint{Changes: true}, func(row *ledger.Row) bool {
			bad = r.noteRow(row)
			return bad == nil
		})
		if err == nil {
			err = bad
		}
		if err != nil {
			return fmt.Errorf("read earlier replays: %w", err)
		}
		r.seen, end = last, ended
	}
	return nil
}

func (r *replaying) noteRow(row *ledger.Row) error {
	if row.Change == nil {
		return nil
	}
	e := row.Entity()
	a, err := usage.AdjustmentKind.ReadIf(&e)
	if err != nil || a == nil || a.Replay == "" {
		return err
	}
	id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
	if r.earlier[id] == nil {
		r.earlier[id] = &applied{}
	}
	return r.earlier[id].take(a.ID, a)
}

// before returns what earlier replays have done to a counter.
func (r *replaying) before(id usage.CounterID) *applied {
	if a := r.earlier[id]; a != nil {
		return a
	}
	return &applied{}
}
