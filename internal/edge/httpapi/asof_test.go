package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Given the answers that a ledger gave along its life, when the same is asked later as of then, by row or by time, then
// the answers are the same bytes.
func TestAnswersOfThePast(t *testing.T) {
	w := newWorld(t)
	reads := []string{
		"/v1/counters", "/v1/counters?meter=calls&customer=c1&period=2026-11", "/v1/counters?period=2026-10",
		"/v1/counters?customer=c2", "/v1/counters?meter=tokens",
		"/v1/periods", "/v1/periods/2026-10", "/v1/periods/2026-11",
		"/v1/usage?meter=calls&window=hour&group_by=customer" + november, "/v1/usage?meter=peak&window=day" + november,
		"/v1/usage?meter=tokens&from=2026-10-01T00:00:00Z&to=2026-12-01T00:00:00Z",
	}
	type moment struct {
		seq     string
		time    time.Time
		answers map[string]string
	}
	var life []moment
	look := func(suffix string) map[string]string {
		out := map[string]string{}
		for _, path := range reads {
			separator := "?"
			if strings.Contains(path, "?") {
				separator = "&"
			}
			a := w.get(strings.TrimSuffix(path+separator+suffix, separator))
			out[path] = fmt.Sprint(a.code)
			if a.code == 200 {
				out[path] += " " + string(a.body)
			}
		}
		return out
	}
	adjust := func(customer, period, amount string) {
		w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
			body: fmt.Sprintf(`{"meter":"calls","customer":"%s","period":"%s","amount":"%s","reason":"r"}`, customer,
				period, amount)}).status(t, 201)
	}
	steps := []func(){
		func() { w.meter(`{"slug":"calls","aggregation":"sum","lateness":"1h"}`) },
		func() {
			w.send(`[{"id":"a","meter":"calls","customer":"c1","time":"2026-11-15T10:00:00Z","quantity":"3"},` +
				`{"id":"b","meter":"calls","customer":"c2","time":"2026-11-15T10:30:00Z"}]`)
		},
		func() { w.meter(`{"slug":"peak","aggregation":"max"}`) },
		func() { w.meter(`{"slug":"tokens","aggregation":"unique","event_type":"llm","unique_property":"n"}`) },
		func() {
			w.send(`[
				{"id":"p1","meter":"peak","customer":"c1","time":"2026-11-15T11:00:00Z","quantity":"9"},
				{"id":"p2","meter":"peak","customer":"c1","time":"2026-11-15T11:00:00Z","quantity":"4"},
				{"id":"t1","type":"llm","customer":"c1","time":"2026-10-31T11:00:00Z","properties":{"n":7}},
				{"id":"t2","type":"llm","customer":"c1","time":"2026-10-31T12:00:00Z","properties":{"n":8}}]`)
		},
		func() {
			w.send(`{"id":"late","meter":"calls","customer":"c1","time":"2026-11-02T10:00:00Z","quantity":"2"}`)
		},
		func() {
			w.correct(`[{"id":"fix","corrects":"p1","quantity":"-9","reason":"r"},{"id":"undo","corrects":"t1",` +
				`"quantity":"-1","reason":"r"}]`)
		},
		func() { adjust("c3", "2026-09", "5") },
		func() { adjust("c1", "2026-10", "2") },
		func() { adjust("c1", "2026-10", "0.5") },
		func() { w.do(call{method: "POST", path: "/v1/periods/2026-10/close", key: "billing"}).status(t, 200) },
		func() {
			w.send(`[{"id":"t3","type":"llm","customer":"c1","time":"2026-10-31T13:00:00Z","properties":{"n":9}},` +
				`{"id":"t4","type":"llm","customer":"c2","time":"2026-10-01T00:00:00Z","properties":{"n":9}}]`)
		},
		func() { adjust("c1", "2026-10", "40") },
		func() {
			items := w.get("/v1/adjustments?meter=calls&customer=c3").items(t)
			w.do(call{method: "POST", path: fmt.Sprintf("/v1/adjustments/%v/revert", items[0]["id"]),
				key: "billing"}).status(t, 201)
		},
		func() {
			w.do(call{method: "POST", path: "/v1/periods/2026-11/close", key: "billing",
				body: `{"confirm":true}`}).status(t, 200)
		},
		func() {
			w.send(`{"id":"after","meter":"calls","customer":"c2","time":"2026-11-15T11:00:00Z","quantity":"7"}`)
		},
	}
	for _, step := range steps {
		step()
		seq := w.get("/v1/usage?meter=calls").header.Get("Tally-As-Of")
		life = append(life, moment{seq, time.Unix(0, w.clock.Load()), look("")})
		w.clock.Add(int64(time.Minute))
	}
	for i, m := range life {
		for _, asOf := range []string{m.seq, m.time.UTC().Format(time.RFC3339),
			m.time.UTC().Add(59 * time.Second).Format(time.RFC3339)} {
			for path, got := range look("as_of=" + asOf) {
				if got != m.answers[path] {
					t.Errorf("after step %d, as of %s, %s:\n got %s\nwant %s", i, asOf, path, got, m.answers[path])
				}
			}
		}
	}
	for _, path := range []string{"/v1/counters?as_of=0", "/v1/periods?as_of=0",
		"/v1/counters?as_of=1999-01-01T00:00:00Z"} {
		if a := w.get(path).status(t, 200); len(a.items(t)) != 0 {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	w.get("/v1/usage?meter=calls&as_of=0").refused(t, 404, "not_found")
	w.get("/v1/counters?meter=calls&as_of=1").refused(t, 404, "not_found")
}
