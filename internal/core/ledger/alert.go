package ledger

import (
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Alerts appends the rows of the thresholds that are due after a kept row, until there are most of them.
func Alerts(st usage.State, row *usage.Row, now calendar.Micros, most int, into []Change) ([]Change, error) {
	due, err := usage.Alerts(st, row, now, most, nil)
	for i := range due {
		into = append(into, AlertRow(&due[i]))
	}
	return into, err
}

// AlertRow is the row of a threshold that was reached. It follows the row of the fact that reached it, in the same
// section.
func AlertRow(a *quota.Alert) Change {
	payload := alertPayload{
		Meter: a.Slug, Period: a.Month.String(), Threshold: a.Threshold, Plan: a.Plan,
		Limit: a.Limit.String(), Used: a.Used.String(),
	}
	if a.Customer != "" {
		payload.Customer = &a.Customer
	}
	state := quota.AlertKind.State(a)
	e := audit.Of(state.Kind, "threshold_reached", state.ID)
	e.Source, e.Actor, e.Payload = audit.SourceSystem, audit.ActorSystem, string(entity.Shape(payload))
	return Change{Event: e, State: state}
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

// MaxAlertRow bounds the strings of an alert's row for a customer's name of that length: JSON writes up to six bytes
// for one, in the payload and in the state, and the quota's id has it twice more.
func MaxAlertRow(customer int) int { return 620 + 14*customer }

// Keep is the change that stores an answered request. It is no change of anything a caller knows, so the audit log
// passes over it.
func Keep(r *request.Stored, actor string) Change {
	e := audit.Of(audit.EntityRequest, "answered", r.Key)
	e.Source, e.Actor = audit.SourceAPI, actor
	return Change{Event: e, State: request.Kind.State(r)}
}
