package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/client"
)

func TestEventOnTheWire(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	e := client.Event{
		ID: "req \"8\"\n\u00e9", Meter: "api_calls", Customer: "cus_42", Resource: "gpt-9", Quantity: "0.10",
		Time: time.Date(2026, 11, 15, 4, 10, 0, 1000, zone),
		Properties: client.Properties{"b": true, "a": "x", "n": nil, "i": -3, "u": uint64(18446744073709551615),
			"d": client.Decimal("1.50"), "j": json.Number("2.250")},
	}
	got, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"req \"8\"\né","meter":"api_calls","customer":"cus_42","resource":"gpt-9","quantity":"0.10",` +
		`"time":"2026-11-15T02:10:00.000001Z","properties":{"a":"x","b":true,"d":"1.50","i":-3,"j":2.250,"n":null,` +
		`"u":18446744073709551615}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	correction, err := json.Marshal(client.Event{ID: "c1", Corrects: "req_8", Quantity: "-1", Reason: "twice"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"id":"c1","quantity":"-1","corrects":"req_8","reason":"twice"}`; string(correction) != want {
		t.Errorf("got %s, want %s", correction, want)
	}
}

func TestEventsThatCannotBeSaidExactlyAreNotSent(t *testing.T) {
	s, url := serve(t, reply(200, accepted))
	c := newClient(t, url)
	for name, e := range map[string]client.Event{
		"float":         {Properties: client.Properties{"x": 0.1}},
		"nested":        {Properties: client.Properties{"x": []string{"y"}}},
		"bad number":    {Properties: client.Properties{"x": json.Number("1,5")}},
		"bad UTF-8":     {ID: "a\xff"},
		"bad name":      {Properties: client.Properties{"a\xff": 1}},
		"year too late": {Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if _, err := c.SendEvent(context.Background(), &e); err == nil {
			t.Errorf("%s: sent", name)
		}
		if _, err := c.SendEvents(context.Background(), []client.Event{e}); err == nil {
			t.Errorf("%s: sent in a batch", name)
		}
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

func TestRefusalsOfASingleEventAreProblems(t *testing.T) {
	body := `{"type":"about:blank","title":"Rejected","status":422,"code":"invalid","detail":"bad","request_id":"r1",` +
		`"errors":[{"path":"quantity","message":"negative"}]}`
	_, url := serve(t, reply(422, body, "Content-Type", "application/problem+json"),
		reply(429, `{"code":"quota_exceeded"}`, "Tally-Quota-Exceeded", "1", "Retry-After", "60"))
	c := newClient(t, url)
	_, err := c.SendEvent(context.Background(), &client.Event{ID: "a"})
	var p *client.Problem
	if !errors.As(err, &p) {
		t.Fatalf("error %v is no Problem", err)
	}
	want := client.Problem{Type: "about:blank", Title: "Rejected", Status: 422, Code: "invalid", Detail: "bad",
		RequestID: "r1", Errors: []client.FieldError{{Path: "quantity", Message: "negative"}}, Attempts: 1}
	if diff := cmp.Diff(want, *p); diff != "" {
		t.Error(diff)
	}
	if text := p.Error(); text != "422 invalid: bad; quantity: negative (request r1)" {
		t.Errorf("text %q", text)
	}
	_, err = c.SendEvent(context.Background(), &client.Event{ID: "b"})
	if !errors.As(err, &p) || !p.QuotaExceeded || p.RateLimited || p.RetryAfter != time.Minute {
		t.Errorf("quota problem %+v", p)
	}
}

func TestBatch(t *testing.T) {
	s, url := serve(t,
		reply(200, `{"accepted":2,"duplicates":1,"adjusted":1,"overage":0,"conflicts":0,"rejected":1,"results":[
		{"index":1,"id":"b","status":"duplicate","seq":5},
		{"index":2,"id":"c","status":"adjusted","seq":9,"overage":true},
		{"index":3,"id":"d","status":"rejected","code":"quota_exceeded","detail":"spent"}]}`,
			"Tally-Quota-Exceeded", "1", "Retry-After", "5", "Tally-Fallback", "true", "Tally-Request-Id", "r1"))
	c := newClient(t, url, client.WithTenant("acme"), client.WithUserAgent("bench/1"))
	events := []client.Event{{ID: "a"}, {ID: "b"}, {ID: "c"}, {}}
	got, err := c.SendEvents(context.Background(), events)
	if err != nil {
		t.Fatal(err)
	}
	want := &client.BatchAnswer{Accepted: 2, Duplicates: 1, Adjusted: 1, Rejected: 1,
		Results: []client.Verdict{
			{Index: 1, ID: "b", Status: client.Duplicate, Seq: 5},
			{Index: 2, ID: "c", Status: client.Adjusted, Seq: 9, Overage: true},
			{Index: 3, ID: "d", Status: client.Rejected, Code: "quota_exceeded", Detail: "spent"},
		},
		Delivery: client.Delivery{Attempts: 1, RequestID: "r1", Fallback: true, QuotaExceeded: true,
			RetryAfter: 5 * time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	r := s.requests()[0]
	if want := fmt.Sprintf(`[{"id":"a"},{"id":"b"},{"id":"c"},{"id":%q}]`, events[3].ID); r.body != want ||
		events[3].ID == "" {
		t.Errorf("sent %s, want %s", r.body, want)
	}
	for name, want := range map[string]string{"Authorization": "Bearer tk_test", "Tally-Tenant": "acme",
		"User-Agent":   "bench/1",
		"Content-Type": "application/json", "Prefer": "", "Content-Encoding": ""} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if a, err := c.SendEvents(context.Background(), nil); err != nil || a.Attempts != 0 || len(s.requests()) != 1 {
		t.Errorf("an empty batch: %+v, %v; want nothing sent", a, err)
	}
}

func TestBatchAnswersMustAddUp(t *testing.T) {
	for name, body := range map[string]string{
		"one missing":      `{"accepted":1,"results":[]}`,
		"one too many":     `{"accepted":3,"results":[]}`,
		"negative":         `{"accepted":3,"duplicates":-1,"results":[]}`,
		"unlisted refusal": `{"accepted":1,"rejected":1,"results":[]}`,
		"listed twice": `{"duplicates":2,"results":[{"index":0,"status":"duplicate"},{"index":0,` +
			`"status":"duplicate"}]}`,
		"beyond the end": `{"accepted":1,"duplicates":1,"results":[{"index":2,"status":"duplicate"}]}`,
		"unknown status": `{"accepted":2,"results":[{"index":1,"status":"maybe"}]}`,
	} {
		_, url := serve(t, reply(200, body))
		c := newClient(t, url)
		_, err := c.SendEvents(context.Background(), []client.Event{{ID: "a"}, {ID: "b"}})
		if !errors.Is(err, client.ErrMalformed) {
			t.Errorf("%s: error %v, want ErrMalformed", name, err)
		}
	}
	_, url := serve(t, reply(200, `{"accepted":1,"results":[]}`))
	if _, err := newClient(t, url).SendEvents(context.Background(), []client.Event{{ID: "a"}},
		client.AllResults()); !errors.Is(err, client.ErrMalformed) {
		t.Errorf("all results asked for, none given: error %v, want ErrMalformed", err)
	}
}

func TestIDsAreLeftAloneWhenAsked(t *testing.T) {
	s, url := serve(t, reply(200, accepted))
	e := client.Event{Meter: "m"}
	if _, err := newClient(t, url, client.WithoutGeneratedIDs()).SendEvent(context.Background(), &e); err != nil {
		t.Fatal(err)
	}
	if _, err := newClient(t, url).SendEvent(context.Background(), &e, client.IdempotencyKey("k")); err != nil {
		t.Fatal(err)
	}
	for i, r := range s.requests() {
		if r.body != `{"meter":"m"}` {
			t.Errorf("request %d: %s, want no id", i, r.body)
		}
	}
	if key := s.requests()[1].header.Get("Idempotency-Key"); key != "k" {
		t.Errorf("key %q, want the caller's", key)
	}
	if _, err := newClient(t, url).SendEvent(context.Background(), &e, client.IdempotencyKey("a\nb")); err == nil {
		t.Error("a key with a line break was sent")
	}
}

func TestNewIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 10_000 {
		id := client.NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("id %q is no UUIDv7 or came twice", id)
		}
		seen[id] = true
	}
}

func TestGzip(t *testing.T) {
	big := strings.Repeat("x", 5000)
	cases := []struct {
		name     string
		opts     []client.Option
		resource string
		want     string
	}{
		{"large by default", nil, big, "gzip"},
		{"small by default", nil, "x", ""},
		{"large, off", []client.Option{client.WithoutGzip()}, big, ""},
		{"small, threshold 0", []client.Option{client.WithGzip(0)}, "x", "gzip"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			// The server drops the first attempt: the second must be whole again.
			s, url := serve(t, reply(503, ""), reply(200, accepted))
			c := newClient(t, url, append(tc.opts, client.WithClock(&recordedClock{}))...)
			if _, err := c.SendEvent(context.Background(), &client.Event{ID: "a", Resource: tc.resource}); err != nil {
				t.Fatal(err)
			}
			for _, r := range s.requests() {
				if got := r.header.Get("Content-Encoding"); got != tc.want {
					t.Errorf("encoding %q, want %q", got, tc.want)
				}
				if field(t, r.body, "resource") != tc.resource {
					t.Errorf("the server read %.40s…", r.body)
				}
			}
		})
	}
}

func TestAnAtomicBatchThatIsRefusedIsAProblemWithItsRefusals(t *testing.T) {
	body := `{"title":"The batch is ` +
		`refused","status":422,"code":"batch_refused","results":[{"index":1,"id":"b","status":"rejected",` +
		`"code":"future","detail":"d"}]}`
	s, url := serve(t, reply(422, body, "Content-Type", "application/problem+json", "Tally-Quota-Exceeded", "1"))
	_, err := newClient(t, url).SendEvents(context.Background(), []client.Event{{ID: "a"}, {ID: "b"}}, client.Atomic())
	var p *client.Problem
	if !errors.As(err, &p) || p.Attempts != 1 || !p.QuotaExceeded {
		t.Fatalf("error %v", err)
	}
	want := []client.Verdict{{Index: 1, ID: "b", Status: client.Rejected, Code: "future", Detail: "d"}}
	if diff := cmp.Diff(want, p.Results); diff != "" {
		t.Error(diff)
	}
	if got := s.requests()[0].uri; got != "/v1/events?atomic=true" {
		t.Errorf("asked for %s", got)
	}
}
