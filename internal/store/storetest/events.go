package storetest

import (
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Month is the period that Start lies in.
var Month = calendar.MonthOf(Ago(0))

// Ago is a moment before Start.
func Ago(d time.Duration) calendar.Micros { return calendar.FromTime(Start).Add(-d) }

// Amount reads a decimal that the test wrote itself.
func Amount(s string) amount.Amount {
	a, err := amount.Parse(s)
	if err != nil {
		panic("storetest: " + s + ": " + err.Error())
	}
	return a
}

// Fact is an event for one meter, with everything stated. An empty id leaves the key to the server.
func Fact(id, slug, customer string, at calendar.Micros, quantity string) usage.Event {
	return usage.Event{ID: id, Meter: slug, Customer: customer, Time: at, Quantity: Amount(quantity),
		Given: usage.GivenMeter | usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity}
}

// Call is an event of a type, which feeds every meter of that type from its properties.
func Call(id, eventType, customer string, at calendar.Micros, members ...properties.Member) usage.Event {
	return With(usage.Event{ID: id, Type: eventType, Customer: customer, Time: at, Quantity: amount.One,
		Given: usage.GivenType | usage.GivenCustomer | usage.GivenTime}, members...)
}

// Correction changes the quantity of a kept fact and leaves the rest to it.
func Correction(id, target, quantity string) usage.Event {
	return usage.Event{ID: id, Corrects: target, Reason: "miscounted", Quantity: Amount(quantity),
		Given: usage.GivenQuantity}
}

// OfMeter states the meter that a correction is about.
func OfMeter(e usage.Event, slug string) usage.Event {
	e.Meter, e.Given = slug, e.Given|usage.GivenMeter
	return e
}

// Untimed is the event without its time.
func Untimed(e usage.Event) usage.Event {
	e.Time, e.Given = 0, e.Given&^usage.GivenTime
	return e
}

// On states the event's resource.
func On(e usage.Event, resource string) usage.Event {
	e.Resource, e.Given = resource, e.Given|usage.GivenResource
	return e
}

// With states the event's properties.
func With(e usage.Event, members ...properties.Member) usage.Event {
	if len(members) > 0 {
		e.Properties, e.Given = string(properties.Append(nil, members)), e.Given|usage.GivenProperties
	}
	return e
}

// Text is a property that is a string.
func Text(name, value string) properties.Member {
	return properties.Member{Name: name, Value: properties.Value{Kind: properties.String, Text: value}}
}

// Number is a property that is a canonical number.
func Number(name, value string) properties.Member {
	return properties.Member{Name: name, Value: properties.Value{Kind: properties.Number, Text: value}}
}
