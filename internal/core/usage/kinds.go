package usage

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
)

// AdjustmentKind is what people adjusted, by id. The amounts of late rows are no entities: they are in their rows.
var AdjustmentKind = entity.Kind[Adjustment]{
	Name: "adjustment", Version: 1, Critical: true,
	ID:     func(a *Adjustment) string { return a.ID },
	Encode: encodeAdjustment,
	Decode: decodeAdjustment,
	Terms: func(a *Adjustment) []entity.Term {
		if a.Reverts == "" {
			return nil
		}
		return []entity.Term{{Index: RevertsIndex, Value: a.Reverts}}
	},
}

// RevertsIndex finds the adjustment that undoes another, by the id of that one.
const RevertsIndex = "reverts"

// PeriodKind is closed periods, by their month. A month that was never closed has no entity.
var PeriodKind = entity.Kind[Period]{
	Name: "period", Version: 1, Critical: true, Resident: true,
	ID:     func(p *Period) string { return p.Month.String() },
	Encode: func(p *Period) []byte { return entity.Shape(periodShape{p.Month, p.Actor}) },
	Decode: func(e *entity.Entity) (Period, error) {
		var in periodShape
		err := json.Unmarshal(e.Data, &in)
		return Period{Month: in.Month, Closed: true, ClosedAt: e.At, Seq: e.Seq, Actor: in.Actor}, err
	},
}

// The shapes on disk.
type (
	adjustmentShape struct {
		Meter    uint32         `json:"meter"`
		Customer string         `json:"customer"`
		Month    calendar.Month `json:"month"`
		Amount   string         `json:"amount"`
		Reason   string         `json:"reason"`
		Actor    string         `json:"actor"`
		Reverts  string         `json:"reverts,omitempty"`
		Replay   string         `json:"replay,omitempty"`
	}
	periodShape struct {
		Month calendar.Month `json:"month"`
		Actor string         `json:"actor"`
	}
)

func encodeAdjustment(a *Adjustment) []byte {
	return entity.Shape(adjustmentShape{
		a.Meter, a.Customer, a.Month, a.Amount.String(), a.Reason, a.Actor, a.Reverts, a.Replay,
	})
}

func decodeAdjustment(e *entity.Entity) (Adjustment, error) {
	var in adjustmentShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Adjustment{}, err
	}
	v, err := amount.Parse(in.Amount)
	if err != nil {
		return Adjustment{}, fmt.Errorf("its amount: %w", err)
	}
	return Adjustment{
		ID: e.ID, Seq: e.Seq, At: e.At, Meter: in.Meter, Customer: in.Customer, Month: in.Month,
		Amount: v, Reason: in.Reason, Actor: in.Actor, Reverts: in.Reverts, Replay: in.Replay,
	}, nil
}
