package ledger

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/quota"
)

// The shapes on disk of plans, their assignments and their alerts.
type (
	planJSON struct {
		Name      string          `json:"name"`
		Quotas    []quotaJSON     `json:"quotas,omitempty"`
		Prices    json.RawMessage `json:"prices,omitempty"`
		CreatedAt calendar.Micros `json:"created_at"`
		UpdatedAt calendar.Micros `json:"updated_at"`
	}
	quotaJSON struct {
		Meter      string   `json:"meter"`
		Limit      string   `json:"limit"`
		Soft       bool     `json:"soft,omitempty"`
		Multiplier string   `json:"hard_cap_multiplier,omitempty"`
		Thresholds []uint16 `json:"thresholds,omitempty"`
	}
	assignmentJSON struct {
		Customer string `json:"customer,omitempty"`
		Plan     string `json:"plan,omitempty"`
	}
	alertJSON struct {
		Meter     uint32         `json:"meter"`
		Customer  string         `json:"customer,omitempty"`
		Month     calendar.Month `json:"month"`
		Threshold uint16         `json:"threshold"`
	}
)

func planOf(p *quota.Plan) *planJSON {
	out := &planJSON{Name: p.Name, Prices: p.Prices, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt}
	for i := range p.Quotas {
		q := &p.Quotas[i]
		one := quotaJSON{Meter: q.Meter, Limit: q.Limit.String(), Soft: q.Soft, Thresholds: q.Thresholds}
		if !q.Multiplier.IsZero() {
			one.Multiplier = q.Multiplier.String()
		}
		out.Quotas = append(out.Quotas, one)
	}
	return out
}

func (p *planJSON) state() (State, error) {
	out := &quota.Plan{Name: p.Name, Prices: p.Prices, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt}
	for _, q := range p.Quotas {
		one := quota.Quota{Meter: q.Meter, Soft: q.Soft, Thresholds: q.Thresholds}
		var err error
		if one.Limit, err = amount.Parse(q.Limit); err == nil && q.Multiplier != "" {
			one.Multiplier, err = amount.Parse(q.Multiplier)
		}
		if err != nil {
			return State{}, fmt.Errorf("decode the quota on %s of plan %s: %w", q.Meter, p.Name, err)
		}
		out.Quotas = append(out.Quotas, one)
	}
	return State{Plan: out}, nil
}

func (a *alertJSON) state() State {
	return State{Alert: &quota.Alert{Meter: a.Meter, Customer: a.Customer, Month: a.Month, Threshold: a.Threshold}}
}

// QuotaEntity is what alerts are audit events of.
const QuotaEntity = "quota"

// AlertRow is the row that tells of a threshold. It follows the row of the fact that reached it, in the same section.
func AlertRow(a *quota.Alert) Change {
	payload := alertPayload{Meter: a.Slug, Period: a.Month.String(), Threshold: a.Threshold, Plan: a.Plan, Limit: a.Limit.String(), Used: a.Used.String()}
	if a.Customer != "" {
		payload.Customer = &a.Customer
	}
	told := audit.Of(QuotaEntity, "threshold_reached", quota.ID(a.Slug, a.Month, a.Customer))
	told.Source, told.Actor, told.Payload = audit.SourceSystem, audit.ActorSystem, string(plain(payload))
	return Change{Event: told, State: State{Alert: a}.Encode()}
}

type alertPayload struct {
	Meter     string  `json:"meter"`
	Customer  *string `json:"customer"` // null: the tenant itself
	Period    string  `json:"period"`
	Threshold uint16  `json:"threshold"`
	Plan      string  `json:"plan"`
	Limit     string  `json:"limit"`
	Used      string  `json:"used"`
}

// MaxAlertRow bounds the strings of an alert's row for a customer's name of that length: JSON writes up to six bytes for one, in
// the payload and in the state.
func MaxAlertRow(customer int) int { return 520 + 13*customer }
