package quota

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// PlanKind is plans, by name.
var PlanKind = entity.Kind[Plan]{
	Name: "plan", Version: 1, Critical: true, Resident: true,
	ID:     func(p *Plan) string { return p.Name },
	Encode: encodePlan,
	Decode: decodePlan,
}

// AssignmentKind is which customer has which plans; see AssignmentID.
var AssignmentKind = entity.Kind[Assignment]{
	Name: "plan_assignment", Version: 1, Critical: true,
	ID:     func(a *Assignment) string { return AssignmentID(a.Customer) },
	Encode: encodeAssignment,
	Decode: decodeAssignment,
	Terms: func(a *Assignment) []entity.Term {
		if a.Customer == "" || !a.Plans.HasPlan() {
			return nil
		}
		return []entity.Term{{Index: AssignedIndex, Value: AssignedToCustomer}}
	},
}

// AssignmentID names the assignment of a customer, or of the tenant itself when customer is empty.
func AssignmentID(customer string) string {
	if customer == "" {
		return tenant.Self
	}
	return customerPrefix + customer
}

const customerPrefix = "customer:"

// AssignedIndex with the value AssignedToCustomer finds the customers that have a plan of their own.
const (
	AssignedIndex      = "assigned"
	AssignedToCustomer = "customer"
)

// AlertKind is the thresholds that were reached, by the quota's id. Of an alert's fields, a row keeps meter, customer,
// month and threshold. It is folded into the counter or the tally that it is about.
var AlertKind = entity.Kind[Alert]{
	Name: "quota", Version: 1, Critical: true, Unkept: true,
	ID: func(a *Alert) string { return ID(a.Slug, a.Month, a.Customer) },
	Encode: func(a *Alert) []byte {
		return entity.Shape(alertShape{a.Meter, a.Customer, a.Month, a.Threshold})
	},
	Decode: func(e *entity.Entity) (Alert, error) {
		var in alertShape
		err := json.Unmarshal(e.Data, &in)
		return Alert{Meter: in.Meter, Customer: in.Customer, Month: in.Month, Threshold: in.Threshold}, err
	},
}

// The shapes on disk.
type (
	planShape struct {
		Name      string          `json:"name"`
		Quotas    []quotaShape    `json:"quotas,omitempty"`
		Prices    json.RawMessage `json:"prices,omitempty"`
		CreatedAt calendar.Micros `json:"created_at"`
		UpdatedAt calendar.Micros `json:"updated_at"`
	}
	quotaShape struct {
		Meter      string   `json:"meter"`
		Limit      string   `json:"limit"`
		Soft       bool     `json:"soft,omitempty"`
		Multiplier string   `json:"hard_cap_multiplier,omitempty"`
		Thresholds []uint16 `json:"thresholds,omitempty"`
	}
	assignmentShape struct {
		Plans []datedShape `json:"plans"`
	}
	datedShape struct {
		From calendar.Micros `json:"from"`
		Plan string          `json:"plan,omitempty"`
	}
	alertShape struct {
		Meter     uint32         `json:"meter"`
		Customer  string         `json:"customer,omitempty"`
		Month     calendar.Month `json:"month"`
		Threshold uint16         `json:"threshold"`
	}
)

func encodeAssignment(a *Assignment) []byte {
	out := assignmentShape{Plans: []datedShape{}}
	for _, d := range a.Plans {
		out.Plans = append(out.Plans, datedShape(d))
	}
	return entity.Shape(out)
}

func decodeAssignment(e *entity.Entity) (Assignment, error) {
	var in assignmentShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Assignment{}, err
	}
	out := Assignment{}
	if e.ID != tenant.Self {
		out.Customer, _ = strings.CutPrefix(e.ID, customerPrefix)
	}
	for _, d := range in.Plans {
		out.Plans = append(out.Plans, Dated(d))
	}
	return out, nil
}

func encodePlan(p *Plan) []byte {
	out := planShape{Name: p.Name, Prices: p.Prices, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt}
	for i := range p.Quotas {
		q := &p.Quotas[i]
		one := quotaShape{Meter: q.Meter, Limit: q.Limit.String(), Soft: q.Soft, Thresholds: q.Thresholds}
		if !q.Multiplier.IsZero() {
			one.Multiplier = q.Multiplier.String()
		}
		out.Quotas = append(out.Quotas, one)
	}
	return entity.Shape(out)
}

func decodePlan(e *entity.Entity) (Plan, error) {
	var in planShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Plan{}, err
	}
	out := Plan{Name: in.Name, Prices: in.Prices, CreatedAt: in.CreatedAt, UpdatedAt: in.UpdatedAt}
	for _, q := range in.Quotas {
		one := Quota{Meter: q.Meter, Soft: q.Soft, Thresholds: q.Thresholds}
		var err error
		if one.Limit, err = amount.Parse(q.Limit); err == nil && q.Multiplier != "" {
			one.Multiplier, err = amount.Parse(q.Multiplier)
		}
		if err != nil {
			return Plan{}, fmt.Errorf("the quota on %s: %w", q.Meter, err)
		}
		out.Quotas = append(out.Quotas, one)
	}
	return out, nil
}
