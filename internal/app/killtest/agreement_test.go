package killtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

// Given three nodes on one database, when one of them changes something, then the others go by it, as soon as is
// promised.
func TestNodesAgree(t *testing.T) {
	database, err := pgtest.Shared(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, 3, build(t, "--store", database))
	setUp(t, f.nodes[0].url)
	t.Run("on meters at once", func(t *testing.T) { agreeOnMeters(t, f) })
	t.Run("on revoked keys within a second", func(t *testing.T) { agreeOnRevokedKeys(t, f) })
	t.Run("on a close in the middle of recording", func(t *testing.T) { agreeOnClose(t, f) })
	f.stop(t)
	f.b.verify(t)
}

// at names a node by any number.
func (f *fleet) at(i int) *client.Client { return f.nodes[i%len(f.nodes)].once.Load() }

// says is the verdict on an event, or why it was refused.
func says(t *testing.T, c *client.Client, e client.Event) string {
	t.Helper()
	a, err := c.SendEvent(context.Background(), &e)
	if err == nil {
		return string(a.Status)
	}
	code := client.Code(err)
	if code == "" {
		t.Fatal(err)
	}
	return code
}

func agreeOnMeters(t *testing.T, f *fleet) {
	ctx := context.Background()
	// Everything lies within one month, and is older than any lateness reaches.
	middle := time.Date(now.Year(), now.Month()-1, 15, 12, 0, 0, 0, time.UTC)
	for i := range 3 * len(f.nodes) {
		slug := fmt.Sprint("made_on_the_way_", i)
		event := func(id string, at time.Time) client.Event {
			return client.Event{ID: slug + id, Meter: slug, Customer: "cus", Time: at, Quantity: "1"}
		}
		want := func(what string, node int, e client.Event, want string) {
			t.Helper()
			if got := says(t, f.at(node), e); got != want {
				t.Errorf("meter %s, %s: said %s, want %s", slug, what, got, want)
			}
		}
		want("before it is made", i+1, event("a", middle), "unknown_meter")
		if _, err := f.at(i).CreateMeter(ctx, client.Meter{Slug: slug, Aggregation: "sum"}); err != nil {
			t.Fatal(err)
		}
		want("on a node that did not know it", i+1, event("a", middle), "accepted")
		want("on the third node", i+2, event("a", middle), "duplicate")
		for k, late := range []string{"reject", "adjust"} {
			if _, err := f.at(i+k).UpdateMeter(ctx, slug, client.MeterUpdate{Late: &late}); err != nil {
				t.Fatal(err)
			}
			want("late: "+late, i+k+1, event(late, middle.Add(-72*time.Hour)), []string{"late", "adjusted"}[k])
		}
	}
}

// promised is how long another node may go on taking a key that was revoked.
const promised = time.Second

func agreeOnRevokedKeys(t *testing.T, f *fleet) {
	ctx := context.Background()
	for i := range f.nodes {
		k, err := f.at(i).CreateAPIKey(ctx, client.NewAPIKey{Scopes: []string{"read"}})
		if err != nil {
			t.Fatal(err)
		}
		var keyed []*client.Client
		for _, n := range f.nodes {
			c := connect(t, n.url, k.Secret)
			defer c.CloseIdleConnections()
			keyed = append(keyed, c)
			if _, err := c.Meters(ctx, client.Paging{}); err != nil {
				t.Errorf("a new key is refused: %v", err)
			}
		}
		if err := f.at(i).DeleteAPIKey(ctx, k.ID); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		for j, c := range keyed {
			until(t, "the key is refused", func() bool {
				asked := time.Now()
				_, err := c.Meters(ctx, client.Paging{})
				var p *client.Problem
				if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
					return true
				}
				// Only what was asked after the promised time counts, so a slow machine breaks nothing.
				if err != nil || asked.Sub(revoked) >= promised || i == j {
					t.Fatalf("node %d was asked %s after node %d had revoked the key: %v", j, asked.Sub(revoked), i,
						err)
				}
				return false
			})
		}
	}
}

// recorder sends facts of its own to one node until it is stopped, and adds up what they were answered.
type recorder struct {
	onTime, adjusted int64        // quantities
	after            atomic.Int64 // requests that began after the close was answered
	failed           atomic.Bool
	err              error // read it after the recorder has ended
}

func (r *recorder) record(c *client.Client, name string, closed, enough *atomic.Bool) {
	defer func() { r.failed.Store(r.err != nil) }()
	for n := 0; !enough.Load() && r.err == nil; n++ {
		var events []client.Event
		for i := range 10 {
			events = append(events, client.Event{ID: fmt.Sprint(name, "-", n, "-", i), Meter: meterName,
				Customer: "closing", Time: now, Quantity: "1"})
		}
		isClosed := closed.Load()
		a, err := c.SendEvents(context.Background(), events, client.AllResults())
		if err != nil {
			r.err = err
			return
		}
		for _, v := range a.Results {
			switch {
			case v.Status == client.Accepted && !isClosed:
				r.onTime++
			case v.Status == client.Adjusted:
				r.adjusted++
			default:
				r.err = fmt.Errorf("%s is %s although the period is closed: %t", v.ID, v.Status, isClosed)
			}
		}
		if isClosed {
			r.after.Add(1)
		}
	}
}

func agreeOnClose(t *testing.T, f *fleet) {
	ctx := context.Background()
	period := now.Format("2006-01")
	var closed, enough atomic.Bool
	var recording sync.WaitGroup
	var all []*recorder
	for i := range 2 * len(f.nodes) {
		r := &recorder{}
		all = append(all, r)
		recording.Go(func() { r.record(f.at(i), strconv.Itoa(i), &closed, &enough) })
	}
	stop := func() {
		enough.Store(true)
		recording.Wait()
	}
	defer stop()
	counter := func(node int) client.Counter {
		page, err := f.at(node).Counters(ctx, client.CounterFilter{Customer: "closing", Period: period})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) == 0 {
			return client.Counter{}
		}
		return page.Items[0]
	}
	until(t, "there is something to seal", func() bool { return counter(1).Count >= 300 })
	if _, err := f.at(0).CloseRunningPeriod(ctx, period); err != nil {
		t.Fatal(err)
	}
	closed.Store(true)
	sealed := counter(1).SealedTotal
	for _, r := range all {
		until(t, "every recorder goes on after the close", func() bool {
			return r.after.Load() >= 3 || r.failed.Load()
		})
	}
	stop()
	var onTime, adjusted int64
	for i, r := range all {
		if r.err != nil {
			t.Fatalf("node %d: %v", i%len(f.nodes), r.err)
		}
		onTime += r.onTime
		adjusted += r.adjusted
	}
	for i := range f.nodes {
		c := counter(i)
		if c.SealedTotal != sealed || string(sealed) != fmt.Sprint(onTime) ||
			string(c.Adjustments) != fmt.Sprint(adjusted) || string(c.Total) != fmt.Sprint(onTime+adjusted) {
			t.Errorf("node %d: %+v; sealed at %s, %d were answered in time and %d adjusted", i, c, sealed, onTime,
				adjusted)
		}
	}
}
