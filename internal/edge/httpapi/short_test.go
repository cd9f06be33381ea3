package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/store"
)

// errScan is what a transaction answers that is asked for more than a look: it holds up every commit of its tenant, and
// on the engine of all tenants.
var errScan = errors.New("a transaction scans the ledger")

// hasty is a store whose transactions scan nothing.
type hasty struct{ store.Store }

func (h hasty) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	return h.Store.Update(ctx, id, func(tx store.Tx) error { return fn(hastyTx{tx}) })
}

type hastyTx struct{ store.Tx }

func (hastyTx) Rows(uint64, store.RowHint, func(*ledger.Row) bool) (uint64, bool, error) {
	return 0, false, errScan
}
func (hastyTx) Sections(uint64, func(*ledger.Section) error) error       { return errScan }
func (hastyTx) PrunedSections(uint64, func(*ledger.Section) error) error { return errScan }
func (hastyTx) Slice(store.SliceQuery, func(*store.Slice) error) error   { return errScan }
func (hastyTx) Counters(store.CounterPlace, func(store.CounterPlace, *usage.Counter) bool) error {
	return errScan
}

// Given transactions that may not scan, then every route that writes does its work all the same, with a request key and
// without. The story makes each of them succeed.
func TestNoWriteScansInsideItsTransaction(t *testing.T) {
	for name, open := range openers {
		for _, keyed := range []bool{false, true} {
			t.Run(name+", keyed "+strconv.FormatBool(keyed), func(t *testing.T) {
				w := newWorldOn(t,
					func(t *testing.T, clock func() time.Time) store.Store { return hasty{open(t, clock)} },
					gate.Options{})
				n := 0
				w.before = func(c call) call {
					if n++; keyed && c.method != http.MethodGet && c.path != eventsPath {
						return c.with("Idempotency-Key", "k-"+strconv.Itoa(n))
					}
					return c
				}
				w.story()
			})
		}
	}
}

// Given a month that is not over, then closing it takes a confirmation, with a request key and without, and a closed
// month none.
func TestClosingAMonthThatIsNotOver(t *testing.T) {
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, open, gate.Options{})
			w.meter(`{"slug":"calls","aggregation":"sum"}`)
			w.send(`{"id":"a","meter":"calls","customer":"c","time":"2026-11-14T00:00:00Z"}`).status(t, 200)
			closing := func(body, key string) answer {
				c := call{method: "POST", path: "/v1/periods/2026-11/close", key: "billing", body: body}
				if key != "" {
					c = c.with("Idempotency-Key", key)
				}
				return w.do(c)
			}
			for _, body := range []string{"", "{}", `{"confirm":false}`, `{"confirm":null}`} {
				closing(body, "").refused(t, 409, "period_not_over")
				closing(body, "k"+strconv.Itoa(len(body))).refused(t, 409, "period_not_over")
			}
			closing(`{"confirm":"yes"}`, "").refused(t, 422, "invalid")
			closing(`{"sure":true}`, "").refused(t, 422, "invalid")
			if a := w.get("/v1/periods/2026-11"); a.text("state") != "open" {
				t.Fatalf("it is %s", a.body)
			}
			closing(`{"confirm":true}`, "k0").refused(t, 422, "idempotency_key_reused")
			first := closing(`{"confirm":true}`, "other").status(t, 200)
			again := closing(`{"confirm":true}`, "other").status(t, 200)
			plain := closing("", "").status(t, 200)
			if first.text("state") != "closed" || first.part("closed_seq") == "null" ||
				string(again.body) != string(first.body) || string(plain.body) != string(first.body) {
				t.Errorf("closed as %s, then %s, then %s", first.body, again.body, plain.body)
			}
			if a := w.get("/v1/periods/2026-11"); len(a.text("seal")) != 64 ||
				a.part("closed_seq") != first.part("closed_seq") {
				t.Errorf("read as %s", a.body)
			}
			w.do(call{method: "POST", path: "/v1/periods/2026-12/close", key: "billing",
				body: `{"confirm":true}`}).refused(t, 422, "invalid")
		})
	}
}
