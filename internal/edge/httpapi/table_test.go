package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/edge/httpkit"
)

// tableWorld has events whose texts a spreadsheet would compute, and properties that differ only in their type.
func tableWorld(t *testing.T) *world {
	w := newWorld(t)
	w.meter(`{"slug":"calls","aggregation":"sum"}`)
	w.meter(`{"slug":"peak","aggregation":"max"}`)
	var events []string
	for i, c := range [][2]string{{"=1+1", `"x":1`}, {"+49", `"x":"1"`}, {"-5", `"x":true`}, {"@me", `"x":"true"`},
		{"'=1", `"x":null`}, {"plain", `"y":0`}, {"plain", `"x":""`},
		{"plain", `"x":-2`}, {"plain", `"x":"=cmd"`}} {
		events = append(events, fmt.Sprintf(`{"id":"=e%d","meter":"calls","customer":"%s","resource":"-r",`+
			`"time":"2026-11-10T0%d:00:00Z","quantity":"1.5","properties":{%s}}`, i, c[0], i, c[1]))
	}
	w.send("["+strings.Join(events, ",")+"]").status(t, 200)
	w.correct(`{"id":"fix","corrects":"=e5","quantity":"-0.5","reason":"=HYPERLINK(1)"}`).status(t, 200)
	w.send(`{"id":"late","meter":"calls","customer":"plain","time":"2026-11-01T00:00:00Z"}`).status(t, 200)
	return w
}

// table reads all pages of CSV, one header line in all.
func (w *world) table(path string) (lines []string) {
	w.t.Helper()
	for at := path; at != ""; {
		a := w.do(call{method: "GET", path: at, key: "read"}.with("Accept", "text/csv")).status(w.t, 200)
		if got := a.header.Get("Content-Type"); got != "text/csv; charset=utf-8; header=present" {
			w.t.Errorf("%s: content type %s", at, got)
		}
		if !slices.Contains(a.header.Values("Vary"), "Accept") {
			w.t.Errorf("%s: caches are not warned: %v", at, a.header)
		}
		page := strings.Split(strings.TrimSuffix(string(a.body), "\r\n"), "\r\n")
		if lines == nil {
			lines = page[:1]
		}
		if page[0] != lines[0] {
			w.t.Errorf("%s: the header is %s", at, page[0])
		}
		lines = append(lines, page[1:]...)
		at = ""
		if next := a.header.Get("Tally-Next-Cursor"); next != "" {
			at = path + "&cursor=" + next
		}
	}
	return lines
}

func TestEventsAsCSV(t *testing.T) {
	w := tableWorld(t)
	whole := w.table("/v1/events?limit=1000")
	if len(whole) != 12 {
		t.Fatalf("%d lines", len(whole))
	}
	for i, want := range map[int]string{
		0: "seq,id,status,overage,meter,type,customer,resource,time,quantity,properties,client_id,corrects,reason," +
			"received_at,outcomes",
		1: `5,'=e0,accepted,false,calls,,'=1+1,'-r,2026-11-10T00:00:00Z,1.5,"{""x"":1}",,,,2026-11-15T12:00:00Z,` +
			`"[{""meter"":""calls"",""value"":""1.5"",""status"":""accepted""}]"`,
		5: `9,'=e4,accepted,false,calls,,''=1,'-r,2026-11-10T04:00:00Z,1.5,"{""x"":null}",,,,2026-11-15T12:00:00Z,` +
			`"[{""meter"":""calls"",""value"":""1.5"",""status"":""accepted""}]"`,
		10: `14,fix,accepted,false,calls,,plain,'-r,2026-11-10T05:00:00Z,-0.5,` +
			`{},,'=e5,'=HYPERLINK(1),2026-11-15T12:00:00Z,"[{""meter"":""calls"",""value"":""-0.5"",` +
			`""status"":""accepted""}]"`,
	} {
		// The seq of the first event depends on what set the tenant up.
		_, want, _ = strings.Cut(want, ",")
		if _, got, _ := strings.Cut(whole[i], ","); got != want {
			t.Errorf("line %d:\n got %s\nwant %s", i, got, want)
		}
	}
	for _, limit := range []int{1, 3, 11} {
		if diff := cmp.Diff(whole, w.table(fmt.Sprintf("/v1/events?limit=%d", limit))); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
	}
	if got := w.table("/v1/events?customer=nobody"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestCountersAsCSV(t *testing.T) {
	w := tableWorld(t)
	w.do(call{method: "POST", path: "/v1/adjustments", key: "billing",
		body: `{"meter":"peak","customer":"nobody","period":"2026-11","amount":"-2","reason":"r"}`}).status(t, 201)
	want := []string{
		"id,meter,customer,period,state,count,sum,min,max,last,watermark,adjustments,total,sealed_total",
		"2026-11:calls:%27=1,calls,''=1,2026-11,open,1,1.5,1.5,1.5,1.5,2026-11-10T04:00:00Z,0,1.5,",
		"2026-11:calls:+49,calls,'+49,2026-11,open,1,1.5,1.5,1.5,1.5,2026-11-10T01:00:00Z,0,1.5,",
		"2026-11:calls:-5,calls,'-5,2026-11,open,1,1.5,1.5,1.5,1.5,2026-11-10T02:00:00Z,0,1.5,",
		"2026-11:calls:=1+1,calls,'=1+1,2026-11,open,1,1.5,1.5,1.5,1.5,2026-11-10T00:00:00Z,0,1.5,",
		"2026-11:calls:@me,calls,'@me,2026-11,open,1,1.5,1.5,1.5,1.5,2026-11-10T03:00:00Z,0,1.5,",
		"2026-11:calls:plain,calls,plain,2026-11,open,4,5.5,1,1.5,1.5,2026-11-10T08:00:00Z,1,6.5,",
		"2026-11:peak:nobody,peak,nobody,2026-11,open,0,0,,,,,-2,-2,",
	}
	for _, limit := range []int{1, 2, 1000} {
		if diff := cmp.Diff(want, w.table(fmt.Sprintf("/v1/counters?limit=%d", limit))); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
	}
}

// 1 and "1", true and "true", nothing and "" are different groups, and different cells.
func TestCellsOfPropertiesAreToldApart(t *testing.T) {
	w := tableWorld(t)
	got := map[string]bool{}
	for _, line := range w.table("/v1/usage?meter=calls&group_by=properties.x" + november)[1:] {
		cells := strings.SplitN(line, ",", 3)
		got[cells[2][:strings.LastIndexByte(cells[2], ',')]] = true
	}
	for _, want := range []string{"", "1", `"""1"""`, "true", `"""true"""`, `""""""`, "-2", "'=cmd"} {
		if !got[want] {
			t.Errorf("no cell %s in %v", want, got)
		}
	}
	if len(got) != 8 {
		t.Errorf("%d cells: %v", len(got), got)
	}
}

// Every read says 406 when Accept leaves nothing that it could give, and only then.
func TestEveryReadLooksAtAccept(t *testing.T) {
	w := tableWorld(t)
	for _, rt := range (*Server)(nil).routes() {
		if rt.method != http.MethodGet {
			continue
		}
		c := w.example(rt)
		if rt.pattern == "/v1/usage" {
			c.path += "?meter=calls"
		}
		plain := w.do(c)
		accepts := []string{"*/*", "", "text/html, */*;q=0.1", "application/*", "image/png, application/json;q=0.2",
			"application/problem+json", "APPLICATION/JSON"}
		refuses := []string{"image/png", "text/html", "application/json;q=0", "application/xml", "*/*;q=0",
			"application/json;q=0, application/problem+json", "image/*"}
		switch {
		case slices.Contains(forMachines, rt.pattern):
			accepts, refuses = append(accepts, refuses...), nil
		case rt.pattern == "/openapi.yaml":
			accepts, refuses = []string{"*/*", "application/yaml", "application/*", "text/html, */*;q=0.8"},
				[]string{"text/csv", "application/json"}
		case slices.Contains(media[rt.pattern], httpkit.MediaNDJSON):
			accepts, refuses = []string{"*/*", "", httpkit.MediaNDJSON, "application/*"},
				[]string{"text/csv", "application/json", "text/html"}
		case rt.pattern == streamPath:
			accepts, refuses = []string{"*/*", "", httpkit.MediaEvents, "text/*"},
				[]string{"text/csv", "application/json", "text/html"}
		case len(media[rt.pattern]) == 2:
			refuses = append(refuses, "text/csv;q=0")
		default:
			refuses = append(refuses, "text/csv")
		}
		for _, accept := range accepts {
			a := w.do(c.with("Accept", accept))
			if a.code != plain.code || a.header.Get("Content-Type") != plain.header.Get("Content-Type") {
				t.Errorf("%s, Accept %q: %d %s", c.path, accept, a.code, a.header.Get("Content-Type"))
			}
		}
		for _, accept := range refuses {
			if a := w.do(c.with("Accept", accept)); a.code != http.StatusNotAcceptable ||
				a.text("code") != "not_acceptable" {
				t.Errorf("%s, Accept %q: %d %s", c.path, accept, a.code, a.body)
			}
		}
	}
}
