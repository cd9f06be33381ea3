package quota

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Bounds of plans.
const (
	MaxPlans      = 1000 // of a tenant
	MaxName       = 63
	MaxQuotas     = 200 // of a plan
	MaxPrices     = 64 << 10
	MaxThresholds = 8
	MaxThreshold  = 1000 // percent
)

// DefaultThresholds are used when a quota names none: in percent of its limit.
var DefaultThresholds = []uint16{80, 100}

var (
	// MaxLimit keeps a limit times its multiplier, and every threshold of it, well inside an amount.
	MaxLimit      = amount.FromInt(1_000_000_000_000_000_000)
	MaxMultiplier = amount.FromInt(1000)
)

// Plan is a named set of quotas, and of prices that billing reads.
type Plan struct {
	Name      string
	Quotas    []Quota
	Prices    []byte // a JSON array as it was given, compact; empty: none
	CreatedAt calendar.Micros
	UpdatedAt calendar.Micros
}

// Quota is what a plan allows of one meter in a calendar month.
type Quota struct {
	Meter string // slug
	Limit amount.Amount
	Soft  bool
	// Multiplier times the limit is where a soft limit refuses; zero: nowhere.
	Multiplier amount.Amount
	Thresholds []uint16 // percent, rising
}

// Alert says that a period's use has reached a threshold of its limit. An empty Customer is the tenant itself.
type Alert struct {
	Meter     uint32
	Slug      string
	Customer  string
	Month     calendar.Month
	Threshold uint16 // percent
	Plan      string
	Limit     amount.Amount
	Used      amount.Amount
}

// ID names the quota of a meter in a month: that of a customer, or of the tenant itself when customer is empty. Ledger
// rows hold it.
func ID(slug string, m calendar.Month, customer string) string {
	id := slug + ":" + m.String()
	if customer != "" {
		id += ":" + customer
	}
	return id
}

// MaxAlerts bounds the alerts that one batch of facts leaves behind, so that its commit has a bound. What is left over
// is reported by the next fact of the same counter.
const MaxAlerts = 64

// Check judges a plan's shape. Whether its meters exist, and add up, is for the caller to see.
func (p *Plan) Check() *problem.Error {
	if bad := tenant.CheckID("name", p.Name, MaxName); bad != nil {
		return bad
	}
	if len(p.Quotas) > MaxQuotas {
		return problem.At("quotas", "at most %d quotas", MaxQuotas)
	}
	if len(p.Prices) > MaxPrices {
		return problem.At("prices", "at most %d bytes of JSON", MaxPrices)
	}
	seen := map[string]bool{}
	for i := range p.Quotas {
		q, path := &p.Quotas[i], fmt.Sprintf("quotas[%d].", i)
		if q.Meter == "" {
			return problem.At(path+"meter", "required")
		}
		if seen[q.Meter] {
			return problem.At(path+"meter", "meter %s has a quota in this plan already", q.Meter)
		}
		seen[q.Meter] = true
		if bad := q.check(path); bad != nil {
			return bad
		}
	}
	return nil
}

func (q *Quota) check(path string) *problem.Error {
	if q.Limit.Sign() < 0 || q.Limit.Cmp(MaxLimit) >= 0 {
		return problem.At(path+"limit", "must be 0 or more and smaller than 10^18")
	}
	if !q.Multiplier.IsZero() && (q.Multiplier.Cmp(amount.One) < 0 || q.Multiplier.Cmp(MaxMultiplier) > 0) {
		return problem.At(path+"hard_cap_multiplier", "must be between 1 and %s", MaxMultiplier)
	}
	if len(q.Thresholds) > MaxThresholds {
		return problem.At(path+"thresholds", "at most %d thresholds", MaxThresholds)
	}
	for i, percent := range q.Thresholds {
		if percent < 1 || percent > MaxThreshold {
			return problem.At(path+"thresholds", "a threshold is a whole number of percent between 1 and %d",
				MaxThreshold)
		}
		if i > 0 && percent <= q.Thresholds[i-1] {
			return problem.At(path+"thresholds", "thresholds must rise")
		}
	}
	return nil
}

// Rules are a plan made ready for judging. They are immutable.
type Rules struct {
	Plan       *Plan
	limits     map[string]*Limit
	thresholds int
}

// Compile makes a checked plan ready.
func Compile(p *Plan) *Rules {
	r := &Rules{Plan: p, limits: make(map[string]*Limit, len(p.Quotas))}
	for i := range p.Quotas {
		q := &p.Quotas[i]
		r.limits[q.Meter] = q.limit(p.Name)
		r.thresholds = max(r.thresholds, len(q.Thresholds))
	}
	return r
}

// Limit is the limit on a meter, or nil. Nil rules limit nothing.
func (r *Rules) Limit(slug string) *Limit {
	if r == nil {
		return nil
	}
	return r.limits[slug]
}

// Meters names the meters that the plan limits, in no order.
func (r *Rules) Meters() iter.Seq[string] { return maps.Keys(r.limits) }

// Thresholds is how many one quota of the plan has at most.
func (r *Rules) Thresholds() int { return r.thresholds }

func (q *Quota) limit(plan string) *Limit {
	l := &Limit{Plan: plan, Limit: q.Limit, Soft: q.Soft}
	if q.Soft && !q.Multiplier.IsZero() {
		// What is used has 12 decimals as well, so that rounding the cap down refuses nothing that the exact one
		// admits.
		l.HardCap, _, l.Capped = q.Limit.Mul(q.Multiplier)
	}
	for _, percent := range q.Thresholds {
		at, exact, _ := q.Limit.Mul(amount.FromInt(int64(percent)).DivInt(100))
		if !exact {
			at, _ = at.Add(amount.Smallest)
		}
		l.marks = append(l.marks, mark{percent, at})
	}
	return l
}

// Clone gives the plan memory of its own.
func (p *Plan) Clone() Plan {
	out := *p
	out.Prices = slices.Clone(p.Prices)
	out.Quotas = slices.Clone(p.Quotas)
	for i := range out.Quotas {
		out.Quotas[i].Thresholds = slices.Clone(out.Quotas[i].Thresholds)
	}
	return out
}
