package app

import (
	"context"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// The public client reads what the server says of usage, quotas and changes.
func TestTheClientReadsReports(t *testing.T) {
	leaves(t)
	ctx := context.Background()
	s := mustStart(t, testSettings(t))
	defer mustStop(t, s)
	acme, _ := newAcme(t, s, "calls")
	if _, err := acme.PutPlan(ctx, client.Plan{Name: "free",
		Quotas: []client.Quota{{Meter: "calls", Limit: "10", Soft: true}}}); err != nil {
		t.Fatal(err)
	}
	for _, customer := range []string{"", "ann"} {
		if err := acme.AssignPlan(ctx, customer, "free"); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Add(-time.Minute).UTC()
	answer, err := acme.SendEvent(ctx,
		&client.Event{ID: "e", Meter: "calls", Customer: "ann", Time: at, Quantity: "12"})
	if err != nil || answer.Status != client.Overage {
		t.Fatalf("%+v, %v", answer, err)
	}
	usage, err := acme.Usage(ctx, client.UsageQuery{Meter: "calls", From: at.Add(-time.Hour), To: at.Add(time.Hour),
		GroupBy: []string{"customer"}})
	if err != nil || len(usage.Items) != 1 || usage.Items[0].Value != "12" ||
		usage.Items[0].Group["customer"] != "ann" {
		t.Errorf("usage %+v, %v", usage, err)
	}
	hour := at.Truncate(time.Hour)
	filled, err := acme.Usage(ctx, client.UsageQuery{Meter: "calls", From: hour.Add(-2 * time.Hour),
		To: hour.Add(time.Hour), Window: "hour", Fill: true})
	if err != nil || len(filled.Items) != 3 || filled.Items[0].Value != "0" || filled.Items[2].Value != "12" {
		t.Errorf("filled usage %+v, %v", filled, err)
	}
	quotas, err := acme.Quotas(ctx, client.CounterFilter{Meter: "calls", Customer: "ann"})
	if err != nil || len(quotas.Items) != 1 || quotas.Items[0].Used != "12" || quotas.Items[0].State != "over" {
		t.Errorf("quotas %+v, %v", quotas, err)
	}
	var reported []string
	for e, err := range acme.AllAuditEvents(ctx,
		client.AuditFilter{EntityType: "quota", Paging: client.Paging{Limit: 1}}) {
		if err != nil {
			t.Fatal(err)
		}
		reported = append(reported, e.EventType)
	}
	if len(reported) != 4 { // 80 and 100 percent, of the customer and of the tenant
		t.Errorf("reported %q", reported)
	}
	if err := acme.AssignPlan(ctx, "ann", ""); err != nil {
		t.Error(err)
	}
}
