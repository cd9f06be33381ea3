package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/client"
)

// demoLateness is the story's lateness window, short so that a late event lies in the same month.
const demoLateness = time.Hour

// play sets up two tenants and plays the story. It returns an error when any answer was not as expected.
func (s *story) play() error {
	if err := s.setUp(); err != nil {
		return fmt.Errorf("set up the demo: %w", err)
	}
	now := storyTime(time.Now())
	before := monthStart(now).Add(-24 * time.Hour)
	first := client.Event{ID: "req_8f2", Meter: "api_calls", Customer: "cus_42", Time: now, Quantity: "3"}
	changed := first
	changed.Quantity = "4"

	s.send("An event is counted", first, "accepted")
	s.send("The same event again changes nothing", first, "duplicate")
	s.send("The same id with another content is refused", changed, "conflict")
	s.send("One that comes too late is kept, and is an adjustment",
		client.Event{ID: "req_late", Meter: "api_calls", Customer: "cus_42", Time: now.Add(-2 * demoLateness),
			Quantity: "5"}, "adjusted")
	s.send("One from the future is refused",
		client.Event{ID: "req_future", Meter: "api_calls", Customer: "cus_42", Time: time.Now().Add(48 * time.Hour)},
		"future")
	s.send("A mistake is corrected by an event of its own",
		client.Event{ID: "fix_1", Corrects: "req_8f2", Quantity: "-1", Reason: "counted one too many"}, "accepted")
	s.counter("So the month stands at: 3, a late 5, one taken back", "api_calls", period(now), "7", "")

	s.send("One model call feeds three meters",
		client.Event{ID: "llm_1", Type: "llm.completion", Customer: "cus_42", Resource: "gpt-9", Time: now,
			Properties: client.Properties{"tokens_in": 1200, "tokens_out": 350}}, "accepted")
	s.counter("Tokens in", "tokens_in", period(now), "1200", "")
	s.counter("Tokens out", "tokens_out", period(now), "350", "")
	s.counter("Calls", "llm_requests", period(now), "1", "")

	s.batch("Four visits of two users, in one batch", visits(now), 4)
	s.counter("Distinct users", "active_users", period(now), "2", "")

	s.send("Usage of last month", client.Event{ID: "old_1", Meter: "api_calls", Customer: "cus_42", Time: before,
		Quantity: "10"}, "accepted")
	s.close("Last month is closed", period(before))
	s.send("What arrives after the close is an adjustment",
		client.Event{ID: "old_2", Meter: "api_calls", Customer: "cus_42", Time: before.Add(time.Minute), Quantity: "2"},
		"adjusted")
	s.counter("The sealed total never changes, the total does", "api_calls", period(before), "12", "10")
	s.wall("Another tenant sees nothing of it", "req_8f2")

	if s.wrong > 0 {
		return fmt.Errorf("not as expected: %d of %s", s.wrong, counted(s.steps, "answer"))
	}
	return s.ctx.Err()
}

// storyTime is when the story takes place: now, or, early in a month, at the end of the month before, because the late
// event must lie in the same month as the others.
func storyTime(now time.Time) time.Time {
	now = now.UTC().Truncate(time.Millisecond)
	if start := monthStart(now); now.Sub(start) < 3*demoLateness {
		return start.Add(-time.Minute)
	}
	return now
}

func monthStart(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

func period(t time.Time) string { return t.Format("2006-01") }

func visits(now time.Time) []client.Event {
	var out []client.Event
	for i, user := range []string{"ann", "bob", "ann", "ann"} {
		out = append(out, client.Event{ID: fmt.Sprint("visit_", i), Meter: "active_users", Customer: "cus_42",
			Time:       now,
			Properties: client.Properties{"user": user}})
	}
	return out
}

// setUp makes two tenants and acme's meters.
func (s *story) setUp() error {
	operator, err := s.connect(s.rootKey)
	if err != nil {
		return err
	}
	for _, t := range []struct {
		id, name string
		into     **client.Client
	}{{"acme", "Acme", &s.tenant}, {"globex", "Globex", &s.other}} {
		made, err := operator.CreateTenant(s.ctx, client.NewTenant{ID: t.id, Name: t.name})
		if err != nil {
			return err
		}
		if *t.into, err = s.connect(made.APIKey); err != nil {
			return err
		}
		if t.into == &s.tenant {
			s.tenantKey = made.APIKey
		}
		s.say("Tenant "+t.name+" is made, with a key of its own", t.id, "201", true)
	}
	for _, m := range []client.Meter{
		{Slug: "api_calls", Aggregation: "sum", Lateness: demoLateness.String()},
		{Slug: "active_users", Aggregation: "unique", UniqueProperty: "user"},
		{Slug: "tokens_in", Aggregation: "sum", EventType: "llm.completion", ValueProperty: "tokens_in"},
		{Slug: "tokens_out", Aggregation: "sum", EventType: "llm.completion", ValueProperty: "tokens_out"},
		{Slug: "llm_requests", Aggregation: "count", EventType: "llm.completion"},
	} {
		if _, err := s.tenant.CreateMeter(s.ctx, m); err != nil {
			return fmt.Errorf("meter %s: %w", m.Slug, err)
		}
	}
	s.say("Acme has five meters; three of them are fed by one event type", "", "201", true)
	return nil
}

// send sends one event and wants a status, or the code of a refusal.
func (s *story) send(title string, e client.Event, want string) {
	body, _ := json.Marshal(e) // an event of the story always encodes
	var got, detail string
	a, err := s.tenant.SendEvent(s.ctx, &e)
	var p *client.Problem
	switch {
	case err == nil:
		got, detail = string(a.Status), fmt.Sprintf("row %d", a.Seq)
	case errors.As(err, &p):
		got, detail = p.Code, fmt.Sprintf("%d: %s", p.Status, p.Detail)
	default:
		got = err.Error()
	}
	s.say(title, "POST /v1/events "+string(body), got+" ("+detail+")", got == want)
}

func (s *story) batch(title string, events []client.Event, accepted int) {
	a, err := s.tenant.SendEvents(s.ctx, events)
	if err != nil {
		s.say(title, "POST /v1/events", err.Error(), false)
		return
	}
	s.say(title, fmt.Sprintf("POST /v1/events [%s]", counted(len(events), "event")),
		fmt.Sprintf("%d accepted", a.Accepted), a.Accepted == accepted)
}

func (s *story) counter(title, meter, month, total, sealed string) {
	page, err := s.tenant.Counters(s.ctx, client.CounterFilter{Meter: meter, Customer: "cus_42", Period: month})
	if err == nil && len(page.Items) != 1 {
		err = errors.New(counted(len(page.Items), "counter"))
	}
	asked := fmt.Sprintf("GET /v1/counters?meter=%s&customer=cus_42&period=%s", meter, month)
	if err != nil {
		s.say(title, asked, err.Error(), false)
		return
	}
	c := page.Items[0]
	answer := fmt.Sprintf("total %s (%s)", c.Total, c.State)
	if c.SealedTotal != "" {
		answer += ", sealed total " + string(c.SealedTotal)
	}
	s.say(title, asked, answer, string(c.Total) == total && string(c.SealedTotal) == sealed)
}

func (s *story) close(title, month string) {
	asked := "POST /v1/periods/" + month + "/close"
	p, err := s.tenant.ClosePeriod(s.ctx, month)
	if err != nil {
		s.say(title, asked, err.Error(), false)
		return
	}
	s.say(title, asked, p.State, p.State == "closed")
}

func (s *story) wall(title, id string) {
	_, err := s.other.Event(s.ctx, id)
	s.say(title, "GET /v1/events/"+id+" (with Globex's key)", client.Code(err), client.Code(err) == "not_found")
}

// say prints one step.
func (s *story) say(title, asked, answer string, ok bool) {
	s.steps++
	if !ok {
		s.wrong++
	}
	if s.json {
		// A reader that is gone reads nothing more.
		_ = printJSON(s.out, struct {
			Step   int    `json:"step"`
			Title  string `json:"title"`
			Asked  string `json:"asked,omitempty"`
			Answer string `json:"answer"`
			OK     bool   `json:"ok"`
		}{s.steps, title, asked, answer, ok})
		return
	}
	fmt.Fprintf(s.out, "%2d. %s\n", s.steps, title)
	if asked != "" {
		fmt.Fprintf(s.out, "      → %s\n", asked)
	}
	mark := "✓"
	if !ok {
		mark = "✗ NOT AS EXPECTED:"
	}
	fmt.Fprintf(s.out, "      ← %s %s\n", answer, mark)
}
