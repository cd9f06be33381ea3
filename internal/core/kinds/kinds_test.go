package kinds_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

const at = calendar.Micros(1_763_000_000_000_000)

var month = calendar.MonthOf(at)

// sample is an entity of a kind with every field set, and its bytes, which never change.
type sample struct {
	state entity.State
	want  any
	read  func(*entity.Entity) (any, error)
	data  string
	terms []entity.Term
}

func of[T any](k *entity.Kind[T], v T, data string, terms ...entity.Term) sample {
	return sample{k.State(&v), v, func(e *entity.Entity) (any, error) { return k.Read(e) }, data, terms}
}

func samples() []sample {
	fold := usage.Fold{
		Count: 2, Sum: amount.FromInt(5), Min: amount.One, Max: amount.FromInt(4), AtMin: 1, AtMax: 1,
		Last: amount.FromInt(4), LastTime: at, LastKey: []byte("ckey"), Members: 3,
	}
	late := fold
	late.Count = 3
	const hash = `AQIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=`
	return []sample{
		of(&tenant.Kind, tenant.Tenant{
			ID: "acme", Name: "Acme", AllowedOrigins: []string{"https://a.example"}, Salt: [32]byte{1, 2},
			TreeKeys: []tree.Key{{FromSeq: 1, Secret: [32]byte{1, 2}}}, Closed: true,
			Epochs:    []tenant.Epoch{{FromSeq: 7, At: 3, Reason: "restored"}},
			CreatedAt: 1, ClosedAt: 2, MovedTo: "there", MovedAt: 3,
		}, `{"id":"acme","name":"Acme","allowed_origins":["https://a.example"],"salt":"`+hash+
			`","tree_keys":[{"from_seq":1,"key":"`+hash+`"}],`+
			`"epochs":[{"from_seq":7,"at":3,"reason":"restored"}],"closed":true,"created_at":1,"closed_at":2,`+
			`"moved_to":"there","moved_at":3}`),
		of(&tenant.KeyKind, tenant.APIKey{
			ID: "acme.1", Name: "k", Scopes: tenant.Ingest | tenant.Read, Hash: [32]byte{1, 2}, CreatedAt: 1,
			ExpiresAt: 3,
			RevokedAt: 2, RateLimit: tenant.RateLimit{RequestsPerSecond: 1, EventsPerSecond: 2, BytesPerSecond: 3},
		}, `{"name":"k","scopes":3,"hash":"`+hash+`","requests_per_second":1,"events_per_second":2,`+
			`"bytes_per_second":3,"created_at":1,"expires_at":3,"revoked_at":2}`),
		of(&meter.Kind, meter.Meter{
			Number: 3, Slug: "m", Name: "M", Aggregation: meter.Unique, EventType: "t", ValueProperty: "v",
			UniqueProperty: "u", Lateness: time.Hour, Late: meter.Reject, KeyPolicy: meter.DerivedKey,
			KeyFields: []string{"time"}, KeyBucket: time.Second, Future: time.Minute, WidestFuture: time.Hour,
			Rounding: meter.HalfEven, MissingValue: meter.SkipMissing, CreatedAt: 1,
			Filter: meter.Filter{
				"resource": {{Kind: properties.String, Text: "<\""}, {Kind: properties.String, Text: "a"}},
				"properties.m": {{Kind: properties.String, Text: "1"}, {Kind: properties.Number, Text: "1"},
					{Kind: properties.Bool, Text: "true"}},
			},
		}, `{"number":3,"slug":"m","name":"M","aggregation":6,"event_type":"t","value_property":"v",`+
			`"unique_property":"u",`+
			`"lateness":3600000000000,"late":1,"key_policy":1,"key_fields":["time"],"key_bucket":1000000000,`+
			`"future":60000000000,"widest_future":3600000000000,"rounding":1,"missing_value":1,`+
			`"filter":{"properties.m":["1",1,true],"resource":["\u003c\"","a"]},"created_at":1}`),
		of(&usage.AdjustmentKind, usage.Adjustment{
			ID: "adj_9", Seq: 9, At: at, Meter: 1, Customer: "c", Month: month, Amount: amount.One, Reason: "r",
			Actor:   "a",
			Reverts: "adj_4", Replay: "late=reject",
		}, `{"meter":1,"customer":"c","month":24310,"amount":"1","reason":"r","actor":"a","reverts":"adj_4",`+
			`"replay":"late=reject"}`, entity.Term{Index: "reverts", Value: "adj_4"}),
		of(&usage.PeriodKind, usage.Period{Month: month, Closed: true, ClosedAt: at, Seq: 9, Actor: "a"},
			`{"month":24310,"actor":"a"}`),
		of(&quota.PlanKind, quota.Plan{
			Name: "pro", Prices: []byte("[1]"), CreatedAt: 1, UpdatedAt: 2, Quotas: []quota.Quota{{
				Meter: "m", Limit: amount.FromInt(5), Soft: true, Multiplier: amount.FromInt(2),
				Thresholds: []uint16{80},
			}},
		}, `{"name":"pro","quotas":[{"meter":"m","limit":"5","soft":true,"hard_cap_multiplier":"2",`+
			`"thresholds":[80]}],`+
			`"prices":[1],"created_at":1,"updated_at":2}`),
		of(&quota.AssignmentKind, quota.Assignment{Customer: "c",
			Plans: quota.Schedule{{From: 7}, {From: 9, Plan: "pro"}}},
			`{"plans":[{"from":7},{"from":9,"plan":"pro"}]}`,
			entity.Term{Index: "assigned", Value: "customer"}),
		of(&quota.AssignmentKind, quota.Assignment{Plans: quota.Schedule{{Plan: "pro"}}},
			`{"plans":[{"from":0,"plan":"pro"}]}`),
		of(&quota.AssignmentKind, quota.Assignment{Customer: "self"}, `{"plans":[]}`),
		of(&quota.AlertKind, quota.Alert{Meter: 1, Customer: "c", Month: month, Threshold: 80},
			`{"meter":1,"customer":"c","month":24310,"threshold":80}`),
		of(&ledger.FloorKind, ledger.Floor{At: 7}, `{"at":7}`),
		of(&ledger.ArchiveKind, ledger.Archive{
			Month: month, Rows: 10, Stay: 2, First: 3, Last: 40, End: 41, Manifest: "a/b.json", Sum: [32]byte{1, 2},
			Seq: 9, At: at,
		}, `{"month":24310,"rows":10,"stay":2,"first":3,"last":40,"end":41,"manifest":"a/b.json","sha256":"`+hash+`"}`),
		of(&ledger.BaseKind, ledger.Base{Month: month, Counters: []ledger.BaseCounter{
			{Meter: 1, Customer: "one", Counter: usage.Counter{
				OnTime: fold, Late: &late, Watermark: at, Started: true, Generation: 2, Manual: amount.FromInt(-1),
				Adjusted: true, Sealed: true, SealedAt: amount.FromInt(7), Alerted: 80,
			}},
			{Meter: 2, Customer: "two"},
		}}, ""),
		of(&sink.Kind, sink.Sink{ID: "s", Name: "S", Way: sink.Kafka, URL: "u", Servers: []string{"b:1"}, Topic: "t",
			Filter: sink.Filter{Rows: sink.Events | sink.Changes, Types: []string{"usage.*"}}, Batch: 7, Start: 9,
			Paused: true, Deleted: true, Secrets: []sink.Secret{{Sealed: []byte{1, 2}, Expires: 3}}, CreatedAt: 4,
			UpdatedAt: at},
			`{"name":"S","way":"kafka","url":"u","servers":["b:1"],"topic":"t","filter":{"rows":5,`+
				`"types":["usage.*"]},`+
				`"batch":7,"start":9,"paused":true,"deleted":true,"secrets":[{"sealed":"AQI=","expires":3}],`+
				`"created_at":4}`),
		of(&sink.ItemKind, sink.Item{ID: "i", Sink: "s", From: 1, To: 2, Filter: sink.Filter{Rows: sink.Events},
			Asked: true, State: sink.Pending, Attempts: 3, Error: "e", CreatedAt: 4, UpdatedAt: at},
			`{"sink":"s","from":1,"to":2,"filter":{"rows":1},"asked":true,"state":"PENDING","attempts":3,"error":"e",`+
				`"created_at":4}`,
			entity.Term{Index: "sink", Value: "s"}, entity.Term{Index: "waiting", Value: "s"}),
		of(&request.Kind, request.Stored{
			Key: "k", Fingerprint: [32]byte{1, 2}, Tenant: "t", ExpiresAt: 5,
			Answer: request.Answer{Status: 201, ContentType: "json", Location: "/x", Body: []byte("b")},
		}, `{"fingerprint":"`+hash+`","status":201,"content_type":"json","location":"/x","body":"Yg==","tenant":"t",`+
			`"expires_at":5}`),
	}
}

// Given an entity with every field set, then its bytes are what they always were, and give the same entity again.
func TestStatesNeverChange(t *testing.T) {
	all, tried := kinds.All(), map[string]bool{}
	for _, s := range samples() {
		tried[s.state.Kind] = true
		if s.data != "" && string(s.state.Data) != s.data {
			t.Errorf("%s is written as\n%s\nand was\n%s", s.state.Kind, s.state.Data, s.data)
		}
		e := entity.Entity{State: s.state, Seq: 9, At: at}
		got, err := s.read(&e)
		if err != nil || !reflect.DeepEqual(got, s.want) {
			t.Errorf("%s came back as %+v, %v; want %+v", s.state.Kind, got, err, s.want)
		}
		entry, err := all.Entry(&e)
		if err != nil || !reflect.DeepEqual(entry.Terms, s.terms) && len(entry.Terms)+len(s.terms) > 0 {
			t.Errorf("%s has the terms %v, %v; want %v", s.state.Kind, entry.Terms, err, s.terms)
		}
	}
	for _, d := range all.All() {
		if !tried[d.Name] {
			t.Errorf("kind %s has no sample here", d.Name)
		}
	}
}

// Given bytes that are no state, or that a newer build wrote, then reading says so.
func TestBadStatesAreNamed(t *testing.T) {
	for _, s := range samples() {
		e := entity.Entity{State: s.state, Seq: 9, At: at}
		for _, bad := range []string{"", "{", `"x"`, `[1]`} {
			e.Data = []byte(bad)
			if _, err := s.read(&e); err == nil || !strings.Contains(err.Error(), s.state.Kind) {
				t.Errorf("%s of %q: %v", s.state.Kind, bad, err)
			}
		}
		e.State = s.state
		e.Version++
		if _, err := s.read(&e); err == nil || !strings.Contains(err.Error(), "newer build") {
			t.Errorf("a newer %s: %v", s.state.Kind, err)
		}
	}
	for kind, bad := range map[*sample]string{
		{read: reads(&tenant.Kind)}:          `{"salt":"AA=="}`,
		{read: reads(&tenant.KeyKind)}:       `{"hash":"AA=="}`,
		{read: reads(&usage.AdjustmentKind)}: `{"amount":"x"}`,
		{read: reads(&quota.PlanKind)}:       `{"quotas":[{"limit":"x"}]}`,
		{read: reads(&ledger.ArchiveKind)}:   `{"sha256":"AA=="}`,
		{read: reads(&ledger.BaseKind)}:      `{"counters":[{"on_time":{"sum":"x"}}]}`,
		{read: reads(&request.Kind)}:         `{"fingerprint":"AA=="}`,
	} {
		if _, err := kind.read(&entity.Entity{State: entity.State{Data: []byte(bad), ID: "x"}}); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func reads[T any](k *entity.Kind[T]) func(*entity.Entity) (any, error) {
	return func(e *entity.Entity) (any, error) {
		e.Kind, e.Version = k.Name, k.Version
		return k.Read(e)
	}
}
