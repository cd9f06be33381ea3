package meter

import (
	"encoding/json"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
)

// Kind is meters, by their slug.
var Kind = entity.Kind[Meter]{
	Name: "meter", Version: 1, Critical: true, Resident: true,
	ID:     func(m *Meter) string { return m.Slug },
	Encode: func(m *Meter) []byte { return entity.Shape(shape(*m)) },
	Decode: func(e *entity.Entity) (Meter, error) {
		var in shape
		err := json.Unmarshal(e.Data, &in)
		return Meter(in), err
	},
}

// shape is a meter on disk: the fields of Meter under names of their own.
type shape struct {
	Number         uint32          `json:"number"`
	Slug           string          `json:"slug"`
	Name           string          `json:"name,omitempty"`
	Aggregation    Aggregation     `json:"aggregation"`
	EventType      string          `json:"event_type,omitempty"`
	ValueProperty  string          `json:"value_property,omitempty"`
	UniqueProperty string          `json:"unique_property,omitempty"`
	Lateness       time.Duration   `json:"lateness"`
	Late           Late            `json:"late,omitempty"`
	KeyPolicy      KeyPolicy       `json:"key_policy,omitempty"`
	KeyFields      []string        `json:"key_fields,omitempty"`
	KeyBucket      time.Duration   `json:"key_bucket,omitempty"`
	Future         time.Duration   `json:"future"`
	WidestFuture   time.Duration   `json:"widest_future,omitempty"`
	Rounding       Rounding        `json:"rounding,omitempty"`
	MissingValue   MissingValue    `json:"missing_value,omitempty"`
	Filter         Filter          `json:"filter,omitempty"`
	CreatedAt      calendar.Micros `json:"created_at"`
}
