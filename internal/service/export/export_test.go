package export

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

type world struct {
	*testing.T
	store store.Store
	sent  int
}

// newWorld has the tenants acme and bolt, each with a sum, a unique meter and two that one type feeds.
func newWorld(t *testing.T) *world {
	w := &world{T: t, store: naive.New(naive.Options{Now: func() time.Time { return start }})}
	reg := registry.New(w.store, rand.Reader)
	for _, id := range []string{"acme", "bolt"} {
		if _, _, err := reg.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: id}); err != nil {
			t.Fatal(err)
		}
		for _, m := range []meter.Meter{
			{Slug: "calls", Aggregation: meter.Sum}, {Slug: "users", Aggregation: meter.Unique, UniqueProperty: "user"},
			{Slug: "in", Aggregation: meter.Sum, EventType: "llm", ValueProperty: "in"},
			{Slug: "out", Aggregation: meter.Sum, EventType: "llm", ValueProperty: "out"},
		} {
			m.Lateness, m.Future = meter.DefaultLateness, meter.DefaultFuture
			if _, err := reg.CreateMeter(t.Context(), "k", id, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// send records one event of each sort, some of them late, and a correction.
func (w *world) send(tenantID string, rounds int) {
	w.Helper()
	for range rounds {
		w.sent++
		n := w.sent
		at := start.Add(-time.Duration(n%7) * 20 * time.Hour)
		event := func(id string) usage.Event {
			return usage.Event{ID: fmt.Sprint(id, n), Customer: []string{"ann", "bob, \"jr\"\nline", "zoë"}[n%3],
				Time: calendar.FromTime(at), Quantity: amount.FromInt(int64(n)),
				Given: usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity}
		}
		plain, unique, fed := event("plain"), event("unique"), event("fed")
		plain.Meter, plain.Resource, plain.Given = "calls", "gpt", plain.Given|usage.GivenMeter|usage.GivenResource
		unique.Meter, unique.Properties, unique.Given = "users", fmt.Sprintf(`{"user":"u%d"}`, n%4),
			unique.Given|usage.GivenMeter|usage.GivenProperties
		fed.Type, fed.Properties, fed.Given = "llm", `{"in":0.25,"out":3}`,
			fed.Given&^usage.GivenQuantity|usage.GivenType|usage.GivenProperties
		fed.Quantity = amount.One
		less := usage.Event{ID: fmt.Sprint("less", n), Corrects: plain.ID, Quantity: amount.One.Neg(),
			Reason: "sent by mistake", Given: usage.GivenQuantity}
		verdicts, err := w.store.Record(w.Context(), store.Batch{Tenant: tenantID,
			Events: []usage.Event{plain, unique, fed, less}})
		if err != nil {
			w.Fatal(err)
		}
		for _, v := range verdicts {
			if v.Seq == 0 {
				w.Fatal(v.Problem)
			}
		}
	}
}

// rows is what an export of everything must hold.
func (w *world) rows(tenantID string, kind Kind) (out []any) {
	w.Helper()
	err := w.store.View(w.Context(), tenantID, func(v store.View) error {
		b := &Ledger{Tenant: tenantID}
		var err error
		if b.meters, err = store.Slugs(v); err != nil {
			return err
		}
		_, _, err = v.Rows(0, store.RowHint{}, func(r *ledger.Row) bool {
			switch {
			case kind == Events && r.Event != nil:
				rec, err := recordOfEvent(b, r)
				if err != nil {
					w.Fatal(err)
				}
				out = append(out, rec)
			case kind == Changes && r.Change != nil:
				rec, _ := recordOfChange(b, r)
				out = append(out, rec)
			}
			return true
		})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) mustRun(o Options) Report {
	w.Helper()
	r, err := Run(w.Context(), FromStore(w.store), o)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// texts shows records as NDJSON has them.
func texts(t *testing.T, records []any) (out []string) {
	t.Helper()
	for _, r := range records {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSuffix(b.String(), "\n"))
	}
	return out
}

func TestNDJSONHoldsEveryRow(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 20)
	w.send("bolt", 5)
	for _, kind := range []Kind{Events, Changes} {
		var out bytes.Buffer
		w.mustRun(Options{Format: NDJSON, Kind: kind, Stream: &out})
		want := texts(t, append(w.rows("acme", kind), w.rows("bolt", kind)...))
		got := slices.DeleteFunc(strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"),
			func(s string) bool { return strings.Contains(s, `"tenant":"_`) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestSecretsStayInTheLedger(t *testing.T) {
	w := newWorld(t)
	var out bytes.Buffer
	w.mustRun(Options{Format: NDJSON, Kind: Changes, Stream: &out})
	if s := out.String(); !strings.Contains(s, "api_key.created") || strings.Contains(s, "salt") ||
		strings.Contains(s, "hash") {
		t.Errorf("got %s", s)
	}
}

func TestParquetHoldsEveryRow(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 300)
	var out bytes.Buffer
	w.mustRun(Options{Format: Parquet, Kind: Events, Filter: Filter{Tenant: "acme"}, Stream: &out})
	got, err := parquet.Read[eventRecord](bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var want []eventRecord
	for _, r := range w.rows("acme", Events) {
		want = append(want, r.(eventRecord))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	f, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for column, logical := range map[string]string{"quantity": "DECIMAL(38,12)",
		"time": "TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)"} {
		if got := f.Root().Column(column).Type().LogicalType().String(); got != logical {
			t.Errorf("%s is %s, want %s", column, got, logical)
		}
	}
}

func TestCSVHoldsEveryRow(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 20)
	var out bytes.Buffer
	w.mustRun(Options{Format: CSV, Kind: Events, Filter: Filter{Tenant: "acme"}, Stream: &out})
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	const header = "tenant,seq,id,status,overage,meter,type,customer,resource,time,quantity,properties,client_id," +
		"corrects,reason,received_at,by,outcomes"
	if got := strings.Join(lines[0], ","); got != header {
		t.Errorf("the header is %s", got)
	}
	want := w.rows("acme", Events)
	if len(lines)-1 != len(want) {
		t.Fatalf("%d lines, want %d", len(lines)-1, len(want))
	}
	for i, line := range lines[1:] {
		r, ok := want[i].(eventRecord)
		if !ok || line[1] != fmt.Sprint(r.Seq) || line[7] != r.Customer || line[9] != r.Time.text() ||
			line[10] != r.Quantity.text() || line[11] != string(r.Properties) {
			t.Errorf("line %d is %q, want %+v", i, line, r)
		}
	}
}

// What a spreadsheet would compute has an apostrophe in CSV; the exact bytes are in the other formats.
func TestCSVHoldsNoFormulas(t *testing.T) {
	w := newWorld(t)
	event := usage.Event{ID: "=1+1", Meter: "calls", Customer: "@sum", Resource: "-r", Time: calendar.FromTime(start),
		Quantity: amount.One, Properties: `{"a":"=1"}`,
		Given: usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity | usage.GivenMeter | usage.GivenResource |
			usage.GivenProperties}
	less := usage.Event{ID: "'+less", Corrects: event.ID, Quantity: amount.One.Neg(), Reason: "\tthere",
		Given: usage.GivenQuantity}
	if _, err := w.store.Record(t.Context(),
		store.Batch{Tenant: "acme", Events: []usage.Event{event, less}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w.mustRun(Options{Format: CSV, Kind: Events, Filter: Filter{Tenant: "acme"}, Stream: &out})
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(lines) != 3 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for _, c := range []struct {
		line, cell int
		want       string
	}{{1, 2, "'=1+1"}, {1, 7, "'@sum"}, {1, 8, "'-r"}, {1, 10, "1"}, {1, 11, `{"a":"=1"}`}, {2, 2, "''+less"},
		{2, 10, "-1"}, {2, 13, "'=1+1"}, {2, 14, "'\tthere"}} {
		if got := lines[c.line][c.cell]; got != c.want {
			t.Errorf("%s of line %d is %q, want %q", lines[0][c.cell], c.line, got, c.want)
		}
	}
}

func TestFilters(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 40)
	w.send("bolt", 5)
	from, to := calendar.FromTime(start.Add(-70*time.Hour)), calendar.FromTime(start.Add(-20*time.Hour))
	for name, c := range map[string]struct {
		filter Filter
		wants  func(r eventRecord) bool
	}{
		"tenant":   {Filter{Tenant: "bolt"}, func(r eventRecord) bool { return r.Tenant == "bolt" }},
		"meter":    {Filter{Meter: "in"}, func(r eventRecord) bool { return r.Type == "llm" }},
		"customer": {Filter{Customer: "zoë"}, func(r eventRecord) bool { return r.Customer == "zoë" }},
		"time": {Filter{From: &from, To: &to}, func(r eventRecord) bool {
			return r.Time >= moment(from) &&
				r.Time < moment(to)
		}},
	} {
		var out bytes.Buffer
		w.mustRun(Options{Format: NDJSON, Kind: Events, Filter: c.filter, Stream: &out})
		want := slices.DeleteFunc(append(w.rows("acme", Events), w.rows("bolt", Events)...),
			func(r any) bool { return !c.wants(r.(eventRecord)) })
		got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if diff := cmp.Diff(texts(t, want), got); diff != "" || len(want) == 0 {
			t.Errorf("%s: %d rows wanted: %s", name, len(want), diff)
		}
	}
	for name, f := range map[string]Filter{"meter": {Meter: "nothing"}, "tenant": {Tenant: "nobody"}} {
		if _, err := Run(t.Context(), FromStore(w.store), Options{Format: CSV, Kind: Events, Filter: f,
			Stream: &bytes.Buffer{}}); !problem.Is(err, problem.NotFound) {
			t.Errorf("unknown %s: %v", name, err)
		}
	}
}

// gather reads all parts of a tenant in order.
func gather(t *testing.T, dir, tenantID string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, tenantID, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, n := range names {
		if !partName.MatchString(filepath.Base(n)) {
			t.Errorf("%s is no part", n)
		}
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
}

func TestAnExportGoesOnWithWhatHasCome(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	o := Options{Format: NDJSON, Kind: Events, Dir: dir, PartRows: 10}
	for range 3 {
		w.send("acme", 7)
		w.mustRun(o)
	}
	again := w.mustRun(o)
	if again.Rows != 0 || again.Parts != 0 {
		t.Errorf("a run with nothing new wrote %+v", again)
	}
	if diff := cmp.Diff(strings.Join(texts(t, w.rows("acme", Events)), "\n")+"\n", gather(t, dir, "acme")); diff != "" {
		t.Error(diff)
	}
}

// breaking ends the context after some views, as a run that is interrupted.
type breaking struct {
	store.Store
	views int
	stop  context.CancelFunc
}

func (b *breaking) View(ctx context.Context, id string, fn func(store.View) error) error {
	if b.views--; b.views == 0 {
		b.stop()
	}
	return b.Store.View(ctx, id, fn)
}

func TestAnExportThatBrokeOffIsGoneOnWith(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 30)
	w.send("bolt", 3)
	dir := t.TempDir()
	o := Options{Format: NDJSON, Kind: Events, Dir: dir}
	for views := 1; ; views++ {
		ctx, stop := context.WithCancel(t.Context())
		_, err := Run(ctx, FromStore(&breaking{w.store, views, stop}), o)
		stop()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"acme", "bolt"} {
		if diff := cmp.Diff(strings.Join(texts(t, w.rows(id, Events)), "\n")+"\n", gather(t, dir, id)); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}

func TestAFolderTakesOneExport(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 10)
	dir := t.TempDir()
	o := Options{Format: NDJSON, Kind: Events, Filter: Filter{Tenant: "acme"}, Dir: dir, PartRows: 1}
	w.mustRun(o)
	for name, change := range map[string]func(*Options){
		"format": func(o *Options) { o.Format = CSV },
		"kind":   func(o *Options) { o.Kind = Changes },
		"filter": func(o *Options) { o.Filter.Customer = "ann" },
	} {
		other := o
		change(&other)
		if _, err := Run(t.Context(), FromStore(w.store), other); !problem.Is(err, problem.Conflict) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	w.send("acme", 10)
	w.mustRun(o)
	parts, err := filepath.Glob(filepath.Join(dir, "acme", "*"))
	if err != nil || len(parts) < 2 {
		t.Fatalf("%q, %v", parts, err)
	}
	if err := os.Remove(parts[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), FromStore(w.store), o); !problem.Is(err, problem.Conflict) {
		t.Errorf("a part was taken away: %v", err)
	}
}

// Every row of every tenant is exported, however few the store lists at a time and one view shows; the operator's own
// ledger is no tenant.
func TestEveryTenantIsExported(t *testing.T) {
	w := newWorld(t)
	w.send("acme", 1)
	w.send("bolt", 1)
	w.store = storetest.ShortPages(w.store, 1)
	var out bytes.Buffer
	r, err := Run(t.Context(), fromStore{w.store, 1}, Options{Format: NDJSON, Kind: Events, Stream: &out})
	if err != nil {
		t.Fatal(err)
	}
	if r.Tenants != 2 || r.Rows != 8 || !strings.Contains(out.String(), `"tenant":"bolt"`) {
		t.Errorf("%+v: %s", r, out.String())
	}
}
