package state

import (
	"flag"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// Ten million take two minutes to fill and some GB: go test -bench Audit -audit-events 10000000
// ./internal/store/engine/state
var auditEvents = flag.Int("audit-events", 200_000, "events in the audit log of BenchmarkAudit")

// auditRow is one of a log in which system and api, and meters and plans, take turns, so that some pairs never meet.
func auditRow(n int) *ledger.Row {
	entity, source := "meter", audit.SourceAPI
	if n%2 == 0 {
		entity, source = "quota", audit.SourceSystem
	}
	e := audit.Of(entity, []string{"created", "updated"}[n/2%2], fmt.Sprint(entity, n%100_000))
	e.Source, e.Actor, e.Payload = source, "acme.key", `{"slug":"calls"}`
	return &ledger.Row{Seq: uint64(n), At: calendar.Micros(n), Change: &ledger.Change{Event: e}}
}

// BenchmarkAudit asks questions that are answered by many events, by few and by none.
func BenchmarkAudit(b *testing.B) {
	s, err := Open(Options{FS: vfs.Default, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	n := *auditEvents
	for from := 1; from <= n; {
		c := s.Begin(0)
		for range min(100_000, n-from+1) {
			c.SetAudit(1, auditRow(from))
			from++
		}
		if err := s.Commit(c, [16]byte{}, journal.Position{}); err != nil {
			b.Fatal(err)
		}
	}
	for name, q := range map[string]store.AuditQuery{
		"all":                 {},
		"entity":              {EntityType: "meter", EntityID: "meter77777"},
		"type":                {Type: "meter.updated"},
		"never together":      {Type: "meter.updated", Source: audit.SourceSystem},
		"entity and source":   {EntityType: "quota", Source: audit.SourceAPI},
		"old times":           {From: 1000, To: 2000},
		"old times of a type": {From: 1000, To: calendar.Micros(n / 2), Type: "quota.created"},
		"none":                {EntityID: "nobody"},
		"far":                 {Type: "meter.created", Offset: 1000},
	} {
		q.Limit = 100
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Audit(1, q, uint64(n)+1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAuditFindsWhatALookAtEveryEventFinds(t *testing.T) {
	s, err := Open(Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 400
	c := s.Begin(0)
	for i := 1; i <= n; i++ {
		c.SetAudit(1, auditRow(i))
		c.SetAudit(2, auditRow(i)) // another tenant's
	}
	if err := s.Commit(c, [16]byte{}, journal.Position{}); err != nil {
		t.Fatal(err)
	}
	for _, entity := range []string{"", "meter", "quota", "none"} {
		for _, id := range []string{"", "meter7", "quota8"} {
			for _, kind := range []string{"", "meter.updated", "quota.created"} {
				for _, source := range []string{"", "api", "system"} {
					for _, times := range [][2]calendar.Micros{{}, {100, 200}, {0, 7}, {399, 0}, {500, 600}} {
						q := store.AuditQuery{EntityType: entity, EntityID: id, Type: kind, Source: source,
							From: times[0], To: times[1], Limit: 5, Offset: 1}
						checkAudit(t, s, q, n)
					}
				}
			}
		}
	}
}

func checkAudit(t *testing.T, s *State, q store.AuditQuery, n int) {
	t.Helper()
	var want []uint64
	for i, passed := n, 0; i > 0 && len(want) < q.Limit; i-- {
		if r := auditRow(i); q.Wants(r) {
			if passed++; passed > q.Offset {
				want = append(want, r.Seq)
			}
		}
	}
	rows, err := s.Audit(1, q, uint64(n)+1)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for i := range rows {
		got = append(got, rows[i].Seq)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v: %d, want %d", q, got, want)
	}
}
