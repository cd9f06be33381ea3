package webhook

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

func TestADeliveryAsItArrives(t *testing.T) {
	for name, k := range map[string]kind{"http": plainHTTP, "https": tlsHTTP1, "http2": tlsHTTP2} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, k, nil)
			o := options(plenty)
			if k != plainHTTP {
				o.Roots = r.roots()
			}
			c := carrier(t, o, r.URL+"/hook?token=a%2Fb")
			if err := c.Deliver(t.Context(), delivery()); err != nil {
				t.Fatal(err)
			}
			all := r.requests()
			if len(all) != 1 || all[0].method != http.MethodPost || all[0].uri != "/hook?token=a%2Fb" {
				t.Fatalf("%+v", all)
			}
			if want := map[kind]int{tlsHTTP2: 2}[k]; want == 2 && all[0].proto != want {
				t.Errorf("HTTP/%d", all[0].proto)
			}
			const want = `{"type":"rows","tenant":"acme","sink":"snk_1","from_seq":7,"to_seq":9,"data":[` +
				`{"seq":7,"type":"usage.recorded","quantity":"3"},{"seq":9,"type":"meter.created","slug":"é \" <b>"}]}`
			if string(all[0].body) != want || !json.Valid(all[0].body) {
				t.Errorf("the body is %s", all[0].body)
			}
			h := all[0].header
			for header, want := range map[string]string{"Content-Type": "application/json",
				"User-Agent": "tallystick/1.2.3",
				"Webhook-Id": "dlv_1", "Content-Length": strconv.Itoa(len(want)), "Accept-Encoding": "", "Cookie": "",
				"Authorization": "", "Referer": ""} {
				if got := h.Get(header); got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
		})
	}
}

func TestAReplayedDeliveryIsMarked(t *testing.T) {
	d := delivery()
	d.Replayed = true
	var body struct {
		Replayed bool              `json:"replayed"`
		Data     []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(appendBody(nil, d), &body); err != nil || !body.Replayed || len(body.Data) != 2 {
		t.Errorf("%+v, %v", body, err)
	}
	d.Rows = nil
	if err := json.Unmarshal(appendBody(nil, d), &body); err != nil || len(body.Data) != 0 {
		t.Errorf("%+v, %v", body, err)
	}
}

func TestRetriesAreTheSameButForTheirTime(t *testing.T) {
	failed := false
	r := receive(t, plainHTTP, func(w http.ResponseWriter, _ *http.Request) {
		if !failed {
			failed = true
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	now := time.Unix(1_800_000_000, 0)
	o := options(plenty)
	o.Now = func() time.Time { return now }
	secret := newSecret(t)
	c := carrier(t, o, r.URL, secrets.Validity{Secret: secret})
	if err := c.Deliver(t.Context(), delivery()); err == nil {
		t.Fatal("a 503 is delivered")
	}
	now = now.Add(time.Hour)
	if err := c.Deliver(t.Context(), delivery()); err != nil {
		t.Fatal(err)
	}
	all := r.requests()
	one, two := all[0], all[1]
	if string(one.body) != string(two.body) || one.header.Get("Webhook-Id") != two.header.Get("Webhook-Id") {
		t.Errorf("%+v\n%+v", one, two)
	}
	if one.header.Get("Webhook-Timestamp") != "1800000000" || two.header.Get("Webhook-Timestamp") != "1800003600" {
		t.Errorf("%s, then %s", one.header.Get("Webhook-Timestamp"), two.header.Get("Webhook-Timestamp"))
	}
	for _, g := range all {
		if err := verifier(t, secret).VerifyIgnoringTimestamp(g.body, g.header); err != nil {
			t.Error(err)
		}
	}
}

func verifier(t testing.TB, s secrets.Signing) *standardwebhooks.Webhook {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(s.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBothSecretsSignWhileOneReplacesTheOther(t *testing.T) {
	r := receive(t, plainHTTP, nil)
	now := time.Now()
	o := options(plenty)
	o.Now = func() time.Time { return now }
	old, fresh, stranger := newSecret(t), newSecret(t), newSecret(t)
	both := secrets.Rotate([]secrets.Validity{{Secret: old}}, fresh, now, time.Hour)
	c := carrier(t, o, r.URL, both...)
	if err := c.Deliver(t.Context(), delivery()); err != nil {
		t.Fatal(err)
	}
	first := r.requests()[0]
	signatures := strings.Fields(first.header.Get("Webhook-Signature"))
	if len(signatures) != 2 || !strings.HasPrefix(signatures[0], "v1,") || !strings.HasPrefix(signatures[1], "v1,") {
		t.Fatalf("%q", signatures)
	}
	for _, s := range []secrets.Signing{old, fresh} {
		if err := verifier(t, s).Verify(first.body, first.header); err != nil {
			t.Error(err)
		}
	}
	if err := verifier(t, stranger).Verify(first.body, first.header); err == nil {
		t.Error("a stranger's secret verifies")
	}
	want, err := verifier(t, fresh).Sign("dlv_1", now, first.body)
	if err != nil || signatures[0] != want {
		t.Errorf("the new secret does not sign first: %v", err)
	}
	tampered := []byte(strings.Replace(string(first.body), `"3"`, `"4"`, 1))
	if err := verifier(t, fresh).Verify(tampered, first.header); err == nil {
		t.Error("a changed body verifies")
	}
	now = now.Add(time.Hour) // the old one's time is over, and the carrier is the same
	if err := c.Deliver(t.Context(), delivery()); err != nil {
		t.Fatal(err)
	}
	second := r.requests()[1]
	if err := verifier(t, old).VerifyIgnoringTimestamp(second.body, second.header); err == nil {
		t.Error("the old secret still signs")
	}
	if err := verifier(t, fresh).VerifyIgnoringTimestamp(second.body, second.header); err != nil {
		t.Error(err)
	}
}

func TestNothingIsSentUnsigned(t *testing.T) {
	r := receive(t, plainHTTP, nil)
	c := carrier(t, options(plenty), r.URL, secrets.Validity{Secret: newSecret(t), Until: time.Unix(1, 0)})
	if err := c.Deliver(t.Context(), delivery()); err == nil || !strings.Contains(err.Error(), "no valid secret") {
		t.Error(err)
	}
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestStatuses(t *testing.T) {
	status := 0
	r := receive(t, plainHTTP, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://169.254.169.254/")
		w.WriteHeader(status)
		if status != http.StatusNoContent && status != http.StatusNotModified {
			_, _ = w.Write([]byte("the receiver's own words"))
		}
	})
	c := carrier(t, options(plenty), r.URL)
	for _, status = range []int{200, 201, 202, 204, 206, 299, 300, 301, 302, 303, 304, 307, 308, 400, 401, 404,
		409, 410,
		422, 429, 500, 503, 599, 999} {
		err := c.Deliver(t.Context(), delivery())
		switch {
		case status < 300:
			if err != nil {
				t.Errorf("%d: %v", status, err)
			}
			continue
		case err == nil || !strings.Contains(err.Error(), strconv.Itoa(status)):
			t.Errorf("%d: %v", status, err)
		case errors.Is(err, sinks.ErrGone) != (status == 410):
			t.Errorf("%d: gone, or not: %v", status, err)
		case status < 400 && !strings.Contains(err.Error(), "redirects are not followed"):
			t.Errorf("%d: %v", status, err)
		case strings.Contains(err.Error(), "own words"):
			t.Errorf("%d shows the answer: %v", status, err)
		}
	}
	if n := len(r.requests()); n != 24 {
		t.Errorf("%d requests for 24 deliveries: something was followed or sent again", n)
	}
}

// Over HTTP/1.1 every delivery has a connection of its own; over HTTP/2 they share one after the first.
func TestConnections(t *testing.T) {
	for _, c := range []struct {
		kind kind
		want int
	}{{plainHTTP, 5}, {tlsHTTP1, 5}, {tlsHTTP2, 2}} {
		r := receive(t, c.kind, nil)
		o := options(plenty)
		if c.kind != plainHTTP {
			o.Roots = r.roots()
		}
		carrier := carrier(t, o, r.URL)
		for range 5 {
			if err := carrier.Deliver(t.Context(), delivery()); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.connections(); got != c.want || len(r.requests()) != 5 {
			t.Errorf("kind %d: %d connections for %d deliveries, want %d", c.kind, got, len(r.requests()), c.want)
		}
	}
}

// A receiver that spoke HTTP/2 may speak HTTP/1.1 from now on.
func TestAConnectionIsNotKeptAfterAll(t *testing.T) {
	r := receive(t, tlsHTTP1, nil)
	o := options(plenty)
	o.Roots = r.roots()
	c := carrier(t, o, r.URL)
	c.reuse.Store(true)
	for range 3 {
		if err := c.Deliver(t.Context(), delivery()); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.connections(); got != 3 {
		t.Errorf("%d connections for 3 deliveries over HTTP/1.1", got)
	}
}
