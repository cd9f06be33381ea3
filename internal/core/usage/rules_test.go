package usage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// TestRules runs the cases of testdata/rules, one file per group of rules. Each case starts with the sentence that it
// shows:
//
//	ledger [now=T]            a new ledger; each input line is a meter
//	meter SLUG AGG [options]  one more meter; options are those of the contract: lateness= key_fields=(a, b) …
//	patch-meter SLUG option…  a change of a meter
//	send [now=T] [details] [atomic]    a batch; each input line is an event, its properties written p.name=JSON scalar
//	orders [totals]           the batch in every order, every fact sent twice, on a ledger of the same meters
//	counter SLUG CUSTOMER MONTH, rows, adjustments    what can be read
//	adjust SLUG CUSTOMER MONTH amount=A reason=R       a person's adjustment
//	close MONTH               the close of a period
//	plan NAME                 a plan; each line is a quota: SLUG limit=A [soft] [multiplier=A] [thresholds=(80, 100)]
//	assign [CUSTOMER] plan=P [from=T]  the plan of a customer, or of the tenant, from then on; plan=none takes it away
//	used, alerts              what all customers used, and which thresholds were reported
//
// Times are RFC 3339, or a date alone for its midnight. A clock that is not set stays where it was.
func TestRules(t *testing.T) {
	datadriven.Walk(t, "testdata/rules", func(t *testing.T, path string) {
		s := &story{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.run(d)
			if err != nil {
				d.Fatalf(t, "%s: %v", d.Cmd, err)
			}
			return out
		})
	})
}

func (s *story) run(d *datadriven.TestData) (string, error) {
	if err := s.setClock(d); err != nil {
		return "", err
	}
	switch d.Cmd {
	case "ledger":
		return s.start(d.Input)
	case "meter":
		return s.addMeter(d.CmdArgs)
	case "patch-meter":
		return s.patchMeter(d.CmdArgs)
	case "send":
		return s.send(d)
	case "orders":
		return s.orders(d)
	case "counter":
		return s.counter(d.CmdArgs)
	case "rows":
		return s.rows()
	case "adjustments":
		return s.adjustments()
	case "adjust":
		return s.adjust(d)
	case "close":
		return s.close(d.CmdArgs[0].Key)
	case "plan":
		return s.plan(d)
	case "assign":
		return s.assign(d)
	case "used":
		return s.used()
	case "alerts":
		return s.alerts()
	}
	return "", fmt.Errorf("no such command")
}

func (s *story) send(d *datadriven.TestData) (string, error) {
	events, err := parseEvents(d.Input)
	if err != nil {
		return "", err
	}
	for i := range events {
		events[i].Corrects = s.long(events[i].Corrects)
	}
	verdicts, err := s.record(events, d.HasArg("atomic"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, v := range verdicts {
		fmt.Fprintf(&b, "%s %s", s.named(v, &events[i]), v.Status)
		if v.Seq != 0 {
			fmt.Fprintf(&b, " seq=%d", v.Seq)
		}
		if v.Overage {
			b.WriteString(" overage")
		}
		if v.Status == usage.Rejected {
			b.WriteString(" " + refusal(v.Problem))
		}
		if v.Problem != nil && d.HasArg("details") {
			b.WriteString(": " + v.Problem.Detail)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// named prints the id of a verdict. Derived keys are numbered as they first appear, so that equal keys read alike.
func (s *story) named(v usage.Verdict, e *usage.Event) string {
	switch {
	case v.Key == usage.Key{} && e.ID == "":
		return "-"
	case v.Key == usage.Key{}:
		return e.ID
	}
	return s.short(v.Key)
}

func (s *story) short(k usage.Key) string {
	if k.Space != usage.DerivedSpace {
		return k.Name
	}
	if s.derived[k.Name] == "" {
		s.derived[k.Name] = fmt.Sprintf("%s%d", usage.DerivedPrefix, len(s.derived)+1)
	}
	return s.derived[k.Name]
}

// long undoes short.
func (s *story) long(id string) string {
	for name, label := range s.derived {
		if label == id {
			return usage.DerivedPrefix + name
		}
	}
	return id
}

// refusal is a problem's code and the field at fault.
func refusal(p *problem.Error) string {
	if len(p.Fields) == 0 {
		return string(p.Code)
	}
	return string(p.Code) + " (" + p.Fields[0].Path + ")"
}

func (s *story) counter(args []datadriven.CmdArg) (string, error) {
	var out string
	err := s.view(func(v store.View) error {
		id, m, err := counterID(v, args)
		if err != nil {
			return err
		}
		c, err := v.Counter(id)
		if err != nil {
			return err
		}
		out = printCounter(&c, m, s.closed(v, id.Month))
		return nil
	})
	return out, err
}

func printCounter(c *usage.Counter, m store.Meter, closed bool) string {
	var b strings.Builder
	f := &c.OnTime
	fmt.Fprintf(&b, "count=%d sum=%s", f.Count, f.Sum)
	if f.Count > 0 {
		fmt.Fprintf(&b, " min=%s max=%s last=%s", f.Min, f.Max, f.Last)
	} else {
		b.WriteString(" min=- max=- last=-")
	}
	if m.UniqueProperty != "" {
		fmt.Fprintf(&b, " unique=%d", f.Members)
	}
	watermark, sealed := "-", "-"
	if c.Started {
		watermark = c.Watermark.String()
	}
	if closed {
		sealed = c.SealedTotal(m.Aggregation).String()
	}
	fmt.Fprintf(&b, " watermark=%s adjustments=%s total=%s sealed=%s", watermark, c.Adjustments(m.Aggregation),
		c.Total(m.Aggregation), sealed)
	return b.String()
}

func (s *story) rows() (string, error) {
	var b strings.Builder
	err := s.eachRow(func(v store.View, r *ledger.Row) error {
		if r.Event == nil {
			return nil
		}
		e := r.Event
		fmt.Fprintf(&b, "%d %s %s customer=%s time=%s", r.Seq, s.short(e.Key), e.Status(), e.Customer, e.Time)
		if e.Has(usage.GivenResource) || e.Resource != "" {
			fmt.Fprintf(&b, " resource=%s", e.Resource)
		}
		if e.IsCorrection() {
			fmt.Fprintf(&b, " corrects=%s", s.short(usage.KeyOfID(e.Corrects)))
		}
		if e.Key.Space == usage.DerivedSpace && e.ID != "" {
			fmt.Fprintf(&b, " client_id=%s", e.ID)
		}
		for i := range e.Outcomes {
			o := &e.Outcomes[i]
			m, err := s.slug(v, o.Meter)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " [%s %s %s]", m, o.Value, o.Why)
		}
		b.WriteByte('\n')
		return nil
	})
	return b.String(), err
}

func (s *story) adjustments() (string, error) {
	var b strings.Builder
	err := s.eachRow(func(v store.View, r *ledger.Row) error {
		for _, a := range adjustmentsOf(r) {
			m, err := s.slug(v, a.Meter)
			if err != nil {
				return err
			}
			if kept, err := store.Adjustment(v, a.ID); err != nil || kept.Amount != a.Amount {
				return fmt.Errorf("%s does not read back: %+v, %w", a.ID, kept, err)
			}
			fmt.Fprintf(&b, "%s %s %s %s amount=%s reason=%s", a.ID, m, a.Customer, a.Month, a.Amount, a.Reason)
			if a.Event != "" {
				fmt.Fprintf(&b, " event=%s", s.short(usage.KeyOfID(a.Event)))
			}
			if a.Actor != "" {
				fmt.Fprintf(&b, " actor=%s", a.Actor)
			}
			b.WriteByte('\n')
		}
		return nil
	})
	return b.String(), err
}

func adjustmentsOf(r *ledger.Row) []usage.Adjustment {
	var out []usage.Adjustment
	if r.Event != nil {
		for i := range r.Event.Outcomes {
			if a, late := usage.LateAdjustment(r.Event, &r.Event.Outcomes[i], r.Seq, r.At); late {
				out = append(out, a)
			}
		}
		return out
	}
	e := r.Entity()
	if a, err := usage.AdjustmentKind.ReadIf(&e); err == nil && a != nil {
		out = append(out, *a)
	}
	return out
}

// orders delivers the facts in every order, each twice, to ledgers of their own, and prints the counters that all agree
// on.
func (s *story) orders(d *datadriven.TestData) (string, error) {
	facts, err := parseEvents(d.Input)
	if err != nil {
		return "", err
	}
	var first string
	n := 0
	err = permute(len(facts), func(order []int) error {
		n++
		other, err := s.copyMeters()
		if err != nil {
			return err
		}
		var batch []usage.Event
		for _, i := range order {
			batch = append(batch, facts[i], facts[order[0]], facts[i])
		}
		verdicts, err := other.record(batch, false)
		if err != nil {
			return err
		}
		for _, v := range verdicts {
			if v.Problem != nil {
				return fmt.Errorf("in order %v: %w", order, v.Problem)
			}
		}
		got, err := other.all(d.HasArg("totals"))
		if err != nil {
			return err
		}
		if first == "" {
			first = got
		}
		if got != first {
			return fmt.Errorf("order %v gives\n%snot\n%s", order, got, first)
		}
		return nil
	})
	return fmt.Sprintf("%d orders agree\n%s", n, first), err
}

// all prints the set of rows and every counter, or of those the total alone.
func (s *story) all(totals bool) (string, error) {
	var b strings.Builder
	err := s.view(func(v store.View) error {
		fmt.Fprintf(&b, "rows: %s\n", strings.Join(s.keys(v), " "))
		return v.Counters(store.CounterPlace{}, func(p store.CounterPlace, c *usage.Counter) bool {
			m, err := store.GetMeter(v, p.Meter)
			if err != nil {
				fmt.Fprintf(&b, "%v\n", err)
				return false
			}
			line := printCounter(c, m, false)
			if totals {
				line = "total=" + c.Total(m.Aggregation).String()
			}
			fmt.Fprintf(&b, "%s %s %s: %s\n", p.Meter, p.Customer, p.Month, line)
			return true
		})
	})
	return b.String(), err
}

func permute(n int, fn func([]int) error) error {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var walk func(k int) error
	walk = func(k int) error {
		if k == n {
			return fn(order)
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			if err := walk(k + 1); err != nil {
				return err
			}
			order[k], order[i] = order[i], order[k]
		}
		return nil
	}
	return walk(0)
}

func counterID(v store.View, args []datadriven.CmdArg) (usage.CounterID, store.Meter, error) {
	if len(args) < 3 {
		return usage.CounterID{}, store.Meter{}, fmt.Errorf("wants a meter, a customer and a month")
	}
	m, err := store.GetMeter(v, args[0].Key)
	if err != nil {
		return usage.CounterID{}, m, err
	}
	month, err := calendar.ParseMonth(args[2].Key)
	return usage.CounterID{Meter: m.Number, Customer: args[1].Key, Month: month}, m, err
}
