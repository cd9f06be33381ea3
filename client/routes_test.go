package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/client"
)

func TestEveryMethodAsksWhatTheContractSays(t *testing.T) {
	ctx := context.Background()
	name := "New"
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	cases := []struct {
		want string // method, URI and body
		call func(*client.Client) error
	}{
		{`POST /v1/tenants {"id":"acme","name":"Acme","allowed_origins":["https://a.example"]}`,
			func(c *client.Client) error {
				_, err := c.CreateTenant(ctx, client.NewTenant{ID: "acme", Name: "Acme",
					AllowedOrigins: []string{"https://a.example"}})
				return err
			}},
		{`GET /v1/tenants/acme `, func(c *client.Client) error { _, err := c.Tenant(ctx, "acme"); return err }},
		{`GET /v1/tenants?cursor=x&limit=5 `, func(c *client.Client) error {
			_, err := c.Tenants(ctx, client.Paging{Limit: 5, Cursor: "x"})
			return err
		}},
		{`PATCH /v1/tenants/acme {"name":"New"}`, func(c *client.Client) error {
			_, err := c.UpdateTenant(ctx, "acme", client.TenantUpdate{Name: &name})
			return err
		}},
		{`POST /v1/tenants/acme/close `,
			func(c *client.Client) error { _, err := c.CloseTenant(ctx, "acme"); return err }},
		{`POST /v1/api-keys {"name":"k","scopes":["ingest"],"expires_at":"2026-11-01T00:00:00+01:00",` +
			`"rate_limit":{"events_per_second":10}}`, func(c *client.Client) error {
			_, err := c.CreateAPIKey(ctx, client.NewAPIKey{Name: "k", Scopes: []string{"ingest"}, ExpiresAt: from,
				RateLimit: &client.RateLimit{EventsPerSecond: 10}})
			return err
		}},
		{`POST /v1/api-keys {"scopes":["read"]}`, func(c *client.Client) error {
			_, err := c.CreateAPIKey(ctx, client.NewAPIKey{Scopes: []string{"read"}})
			return err
		}},
		{`GET /v1/api-keys `, func(c *client.Client) error { _, err := c.APIKeys(ctx, client.Paging{}); return err }},
		{`GET /v1/api-keys/k1 `, func(c *client.Client) error { _, err := c.APIKey(ctx, "k1"); return err }},
		{`DELETE /v1/api-keys/k1 `, func(c *client.Client) error { return c.DeleteAPIKey(ctx, "k1") }},
		{`POST /v1/meters {"slug":"s","aggregation":"sum","lateness":"48h","key_fields":["meter","time"]}`,
			func(c *client.Client) error {
				_, err := c.CreateMeter(ctx, client.Meter{Slug: "s", Aggregation: "sum", Lateness: "48h",
					KeyFields: []string{"meter", "time"}})
				return err
			}},
		{`GET /v1/meters `, func(c *client.Client) error { _, err := c.Meters(ctx, client.Paging{}); return err }},
		{`GET /v1/meters/s `, func(c *client.Client) error { _, err := c.Meter(ctx, "s"); return err }},
		{`PATCH /v1/meters/s {"late":"New"}`, func(c *client.Client) error {
			_, err := c.UpdateMeter(ctx, "s", client.MeterUpdate{Late: &name})
			return err
		}},
		{`GET /v1/events?customer=c+1&from=2026-10-31T23%3A00%3A00Z&meter=m&resource=r&status=adjusted&` +
			`to=2026-11-30T23%3A00%3A00Z `, func(c *client.Client) error {
			_, err := c.Events(ctx, client.EventFilter{Meter: "m", Customer: "c 1", Resource: "r",
				Status: client.Adjusted, From: from, To: from.AddDate(0, 0, 30)})
			return err
		}},
		{`GET /v1/events/a%2Fb%20%3F%C3%A9 `,
			func(c *client.Client) error { _, err := c.Event(ctx, "a/b ?é"); return err }},
		{`GET /v1/events/%2E%2E `, func(c *client.Client) error { _, err := c.Event(ctx, ".."); return err }},
		{`GET /v1/counters?customer=c&meter=m&period=2026-11 `, func(c *client.Client) error {
			_, err := c.Counters(ctx, client.CounterFilter{Meter: "m", Customer: "c", Period: "2026-11"})
			return err
		}},
		{`GET /v1/adjustments?meter=m `, func(c *client.Client) error {
			_, err := c.Adjustments(ctx, client.CounterFilter{Meter: "m"})
			return err
		}},
		{`POST /v1/adjustments/a1/revert `,
			func(c *client.Client) error { _, err := c.RevertAdjustment(ctx, "a1"); return err }},
		{`POST /v1/periods/2026-11/close `,
			func(c *client.Client) error { _, err := c.ClosePeriod(ctx, "2026-11"); return err }},
		{`POST /v1/periods/2026-11/close {"confirm":true}`,
			func(c *client.Client) error { _, err := c.CloseRunningPeriod(ctx, "2026-11"); return err }},
		{`GET /v1/periods `, func(c *client.Client) error { _, err := c.Periods(ctx, client.Paging{}); return err }},
		{`GET /v1/periods/2026-11 `, func(c *client.Client) error { _, err := c.Period(ctx, "2026-11"); return err }},
		{`GET /healthz `, func(c *client.Client) error { return c.Health(ctx) }},
		{`GET /readyz `, func(c *client.Client) error { return c.Ready(ctx) }},
		{`GET /metrics `, func(c *client.Client) error { _, err := c.Metrics(ctx); return err }},
	}
	for _, tc := range cases {
		s, url := serve(t, reply(200, "{}"))
		if err := tc.call(newClient(t, url+"/")); err != nil {
			t.Errorf("%s: %v", tc.want, err)
			continue
		}
		r := s.requests()[0]
		if got := r.method + " " + r.uri + " " + r.body; got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestAnswersAreReadExactly(t *testing.T) {
	_, url := serve(t, reply(200,
		`{"items":[{"meter":"m","customer":"c","period":"2026-11","state":"open","count":3,"sum":"0.30","min":null,
		"max":0.1000000000000000000001,"last":"0.1","watermark":"2026-11-15T02:10:00.000001Z","adjustments":"0",
		"total":"0.30","sealed_total":null,"new_field":1}],"next_cursor":null}`),
		reply(200, `{"id":"a","seq":4,"quantity":"2","time":"2026-11-15T02:10:00Z",`+
			`"properties":{"n":0.1000000000000000000001},"corrections":[{"id":"c","quantity":"-1","corrects":"a"}]}`))
	c := newClient(t, url)
	page, err := c.Counters(context.Background(), client.CounterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	want := &client.Page[client.Counter]{Items: []client.Counter{{Meter: "m", Customer: "c", Period: "2026-11",
		State: "open", Count: 3,
		Sum: "0.30", Max: "0.1000000000000000000001", Last: "0.1",
		Watermark:   time.Date(2026, 11, 15, 2, 10, 0, 1000, time.UTC),
		Adjustments: "0", Total: "0.30"}}}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Error(diff)
	}
	row, err := c.Event(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if n := row.Properties["n"]; n != json.Number("0.1000000000000000000001") {
		t.Errorf("property %v (%T), want every digit", n, n)
	}
	if len(row.Corrections) != 1 || row.Corrections[0].Quantity != "-1" {
		t.Errorf("corrections %+v", row.Corrections)
	}
}

func TestAllEventsWalksPagesAndStops(t *testing.T) {
	page := func(items, next string) http.HandlerFunc {
		return reply(200, `{"items":[`+items+`],"next_cursor":`+next+`}`)
	}
	walk := func(t *testing.T, url string, limit int) (ids string, err error) {
		for row, err := range newClient(t, url).AllEvents(context.Background(), client.EventFilter{Meter: "m"}) {
			if err != nil {
				return ids, err
			}
			if ids += row.ID; len(ids) == limit {
				break
			}
		}
		return ids, nil
	}
	t.Run("to the end", func(t *testing.T) {
		s, url := serve(t, page(`{"id":"a"},{"id":"b"}`, `"p2"`), page(``, `"p3"`), page(`{"id":"c"}`, `null`))
		if ids, err := walk(t, url, -1); ids != "abc" || err != nil {
			t.Errorf("got %q, %v", ids, err)
		}
		if uri := s.requests()[2].uri; uri != "/v1/events?cursor=p3&meter=m" {
			t.Errorf("third page asked as %s", uri)
		}
	})
	t.Run("until the caller has enough", func(t *testing.T) {
		s, url := serve(t, page(`{"id":"a"},{"id":"b"}`, `"p2"`))
		if ids, err := walk(t, url, 1); ids != "a" || err != nil || len(s.requests()) != 1 {
			t.Errorf("got %q, %v after %d requests", ids, err, len(s.requests()))
		}
	})
	t.Run("to an error", func(t *testing.T) {
		_, url := serve(t, page(`{"id":"a"}`, `"p2"`), reply(410, `{"code":"archived"}`))
		if ids, err := walk(t, url, -1); ids != "a" || client.Code(err) != "archived" {
			t.Errorf("got %q, %v", ids, err)
		}
	})
	t.Run("not in circles", func(t *testing.T) {
		s, url := serve(t, page(`{"id":"a"}`, `"p2"`))
		if ids, err := walk(t, url, -1); ids != "aa" || !errors.Is(err, client.ErrMalformed) || len(s.requests()) != 2 {
			t.Errorf("got %q, %v after %d requests", ids, err, len(s.requests()))
		}
	})
}

func TestProbesAskOnceAndWithoutAKey(t *testing.T) {
	s, url := serve(t, reply(503, `{"code":"not_ready","detail":"journal: disk full"}`))
	clock := &recordedClock{}
	err := newClient(t, url, client.WithClock(clock)).Ready(context.Background())
	if client.Code(err) != "not_ready" || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v, want why it is not ready", err)
	}
	if got := s.requests(); len(got) != 1 || got[0].header.Get("Authorization") != "" {
		t.Errorf("%d requests, authorization %q", len(got), got[0].header.Get("Authorization"))
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, make := range map[string]func() (*client.Client, error){
		"no scheme":      func() (*client.Client, error) { return client.New("localhost:8080", "k") },
		"no host":        func() (*client.Client, error) { return client.New("http://", "k") },
		"other scheme":   func() (*client.Client, error) { return client.New("ftp://h", "k") },
		"secret in URL":  func() (*client.Client, error) { return client.New("http://u:sesame@h", "k") },
		"broken, secret": func() (*client.Client, error) { return client.New("http://u:sesame@h:port", "k") },
		"query":          func() (*client.Client, error) { return client.New("http://h?x=1", "k") },
		"key":            func() (*client.Client, error) { return client.New("http://h", "sesame\n") },
		"tenant": func() (*client.Client, error) {
			return client.New("http://h", "k", client.WithTenant("a\r\nb"))
		},
		"no bound": func() (*client.Client, error) { return client.New("http://h", "k", client.WithMaxAnswer(0)) },
		"no clock": func() (*client.Client, error) { return client.New("http://h", "k", client.WithClock(nil)) },
	} {
		_, err := make()
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
}
