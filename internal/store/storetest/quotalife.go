package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/store"
)

// changePlan makes one of a few plans anew, with quotas that a life can run into, also of meters that only a type
// feeds.
func (l *life) changePlan(id string) {
	p := quota.Plan{Name: rapid.SampledFrom([]string{"p", "q"}).Draw(l.T, "plan")}
	for _, slug := range []string{"calls", "hits", "m-count", "m-sum", "strict"} {
		if rapid.IntRange(0, 2).Draw(l.T, "limited") == 0 {
			p.Quotas = append(p.Quotas, l.quota(slug))
		}
	}
	l.update("change plan", id, func(tx store.Tx) error {
		p.UpdatedAt = tx.Now()
		return PutPlan(tx, p)
	})
}

func (l *life) quota(slug string) quota.Quota {
	draw := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(l.T, name) }
	q := quota.Quota{Meter: slug, Limit: Amount(draw("limit", "0", "1", "3", "8.5", "20", "999999999999999")),
		Soft: draw("soft", "yes", "no") == "yes"}
	if m := draw("multiplier", "0", "1", "1.5", "3"); m != "0" {
		q.Multiplier = Amount(m)
	}
	switch draw("thresholds", "none", "plain", "plain", "many") {
	case "plain":
		q.Thresholds = quota.DefaultThresholds
	case "many":
		q.Thresholds = []uint16{1, 2, 3, 50, 99, 100, 101, 1000}
	}
	return q
}

// assign puts a plan in force, or takes it away, sometimes to change its mind.
func (l *life) assign(id string) {
	customer := rapid.SampledFrom(append([]string{"", ""}, lifeCustomers...)).Draw(l.T, "customer")
	plan := rapid.SampledFrom([]string{"p", "p", "q", ""}).Draw(l.T, "plan")
	fails := rapid.IntRange(0, 4).Draw(l.T, "fails") == 0
	// Some come into force while the life goes on, some are dated back.
	ahead := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Microsecond, time.Minute, time.Hour, 30 * time.Hour,
		-time.Hour}).Draw(l.T, "ahead")
	l.update("assign a plan", id, func(tx store.Tx) error {
		if err := AssignFrom(tx, customer, plan, tx.Now().Add(ahead)); err != nil {
			return err
		}
		if fails {
			return errEnough
		}
		return nil
	})
}
