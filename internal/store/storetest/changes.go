package storetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// The changes that stories make. They append what a service would and check nothing that a store does not owe them.

// Tenant makes the tenant's first state. Salt and tree key are functions of the id, so that
// two stores derive the same keys and hashes.
func Tenant(id string, now calendar.Micros) tenant.Tenant {
	return tenant.Tenant{ID: id, Name: "Tenant " + id, AllowedOrigins: []string{"https://" + id + ".example.com"},
		CreatedAt: now,
		Salt:      sha256.Sum256([]byte("salt of " + id)),
		TreeKeys:  []tree.Key{{FromSeq: 1, Secret: sha256.Sum256([]byte("tree of " + id))}}}
}

func change(what, action, id string, s entity.State) ledger.Change {
	e := audit.Of(what, action, id)
	e.Source, e.Actor, e.Payload = audit.SourceAPI, "tester", `{"by":"the suite"}`
	return ledger.Change{Event: e, State: s}
}

// PutTenant appends the tenant as it is from then on.
func PutTenant(tx store.Tx, t tenant.Tenant) error {
	_, err := tx.Append(change("tenant", "put", t.ID, tenant.Kind.State(&t)))
	return err
}

// BeginEpoch appends the beginning of the tenant's next epoch. The key that the tree has from then on is a function of
// the row.
func BeginEpoch(tx store.Tx, t *tenant.Tenant) error {
	e := tenant.Epoch{FromSeq: tx.Head().Seq + 1, At: tx.Now(), Reason: "restored from a copy"}
	secret := sha256.Sum256(fmt.Appendf(nil, "tree of %s after row %d", t.ID, e.FromSeq))
	if err := t.BeginEpoch(e, secret); err != nil {
		return err
	}
	_, err := tx.Append(change("epoch", "begun", t.ID, tenant.Kind.State(t)))
	return err
}

// PutKey appends an API key as it is from then on.
func PutKey(tx store.Tx, k tenant.APIKey) error {
	_, err := tx.Append(change("api_key", "put", k.ID, tenant.KeyKind.State(&k)))
	return err
}

// PutMeter appends a meter as it is from then on; a new one gets the next number.
func PutMeter(tx store.Tx, m meter.Meter) error {
	old, err := store.GetMeter(tx, m.Slug)
	switch {
	case err == nil:
		m.Number, m.CreatedAt = old.Number, old.CreatedAt
		m.Follow(&old.Meter)
	case problem.Is(err, problem.NotFound):
		all, err := store.Meters(tx, store.Page{Limit: tenant.MaxMeters})
		if err != nil {
			return err
		}
		m.Number, m.CreatedAt = uint32(len(all)+1), tx.Now()
	default:
		return err
	}
	_, err = tx.Append(change("meter", "put", m.Slug, meter.Kind.State(&m)))
	return err
}

// Adjust appends a person's adjustment and returns its id. Reverts names the adjustment that it undoes, if any.
func Adjust(tx store.Tx, slug, customer string, m calendar.Month, quantity, reverts string) (string, error) {
	on, err := store.GetMeter(tx, slug)
	if err != nil {
		return "", err
	}
	a := usage.Adjustment{
		ID:    usage.ManualID(tx.Head().Seq + 1),
		Meter: on.Number, Customer: customer, Month: m, Amount: Amount(quantity), Reason: "goodwill", Actor: "tester",
		Reverts: reverts,
	}
	_, err = tx.Append(change("adjustment", "create", customer, usage.AdjustmentKind.State(&a)))
	return a.ID, err
}

// ClosePeriod appends the close of a month.
func ClosePeriod(tx store.Tx, m calendar.Month) error {
	_, err := tx.Append(change("period", "close", m.String(),
		usage.PeriodKind.State(&usage.Period{Month: m, Actor: "tester"})))
	return err
}

// stateOf reads the state that a row left, or nil when it is of another kind.
func stateOf[T any](t TB, k *entity.Kind[T], r *ledger.Row) *T {
	t.Helper()
	if r.Change == nil {
		return nil
	}
	e := r.Entity()
	v, err := k.ReadIf(&e)
	if err != nil {
		t.Fatalf("row %d: %v", r.Seq, err)
	}
	return v
}

// Create makes a tenant with its meters in one commit.
func Create(s store.Store, id string, meters ...meter.Meter) error {
	return s.Update(context.Background(), id, func(tx store.Tx) error {
		if err := PutTenant(tx, Tenant(id, tx.Now())); err != nil {
			return err
		}
		for _, m := range meters {
			if err := PutMeter(tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// NewMeter is a meter with the default settings.
func NewMeter(slug string, a meter.Aggregation) meter.Meter {
	return meter.Meter{Slug: slug, Name: "Meter " + slug, Aggregation: a, Lateness: meter.DefaultLateness,
		Future: meter.DefaultFuture}
}

// mixType is the type that feeds one meter of every aggregation.
const mixType = "mix"

// mixMeters are those meters, named m-sum, m-count and so on. They stand here in an order that is not that of their
// slugs.
func mixMeters() []meter.Meter {
	var out []meter.Meter
	for _, a := range []meter.Aggregation{meter.Sum, meter.Count, meter.Min, meter.Max, meter.Last, meter.Unique,
		meter.Avg} {
		m := NewMeter("m-"+a.String(), a)
		m.EventType, m.ValueProperty = mixType, "v"
		if a == meter.Unique {
			m.ValueProperty, m.UniqueProperty = "", "u"
		}
		out = append(out, m)
	}
	return out
}

// mixSlugs are the slugs of those meters, in their order.
func mixSlugs() []string {
	var out []string
	for _, m := range mixMeters() {
		out = append(out, m.Slug)
	}
	slices.Sort(out)
	return out
}

// mix is an event for all of those meters: a value and a member.
func mix(id, customer string, at calendar.Micros, value, member string) usage.Event {
	return Call(id, mixType, customer, at, Number("v", value), Text("u", member))
}
