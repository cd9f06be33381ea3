package httpapi

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
)

const (
	mediaJSON    = "application/json"
	mediaCSV     = "text/csv"
	mediaNDJSON  = "application/x-ndjson" // a document a line
	mediaYAML    = "application/yaml"
	mediaProblem = "application/problem+json"
)

// representations are what reads can be answered with, the first being what a caller without a wish gets. Those that
// are not here have JSON alone.
var representations = map[string][]string{
	eventsPath:      {mediaJSON, mediaCSV},
	"/v1/counters":  {mediaJSON, mediaCSV},
	"/v1/usage":     {mediaJSON, mediaCSV},
	"/openapi.yaml": {mediaYAML},

	"/v1/verification":      {mediaNDJSON},
	"/v1/ledgers":           {mediaNDJSON},
	"/v1/ledgers/{id}/rows": {mediaNDJSON},
}

// forMachines are answered whatever they accept: an odd header of a balancer's probe must not take a node out of
// service.
var forMachines = []string{"/healthz", "/readyz", "/metrics"}

// choose settles what a read is answered with.
func (x *exchange) choose(rt *route) (err error) {
	if rt.method != http.MethodGet || slices.Contains(forMachines, rt.pattern) {
		return nil
	}
	types, several := representations[rt.pattern]
	if !several {
		types = []string{mediaJSON}
	}
	if len(types) > 1 {
		h := x.w.Header()
		h["Vary"] = append(h["Vary"], "Accept")
	}
	x.media, err = x.accepted(types...)
	return err
}

// accepted chooses among media types. The most specific range that names a type decides how much it is wished for, as
// RFC 9110 has it. Who accepts problems speaks JSON.
func (x *exchange) accepted(types ...string) (string, error) {
	header := strings.Join(x.r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return types[0], nil
	}
	best, wish := "", 0.0
	for _, t := range types {
		w, named := wished(header, t)
		if t == mediaJSON && !named {
			w, _ = wished(header, mediaProblem)
		}
		if w > wish {
			best, wish = t, w
		}
	}
	if best == "" {
		return "", problem.New(problem.NotAcceptable, "Accept names nothing that this can be answered with: %s", strings.Join(types, ", "))
	}
	return best, nil
}

// wished is the weight that an Accept header gives to a type, and whether any part of the header is about it.
func wished(header, name string) (weight float64, named bool) {
	family, _, _ := strings.Cut(name, "/")
	specific := -1
	for part := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		how := -1
		switch media {
		case name:
			how = 2
		case family + "/*":
			how = 1
		case "*/*":
			how = 0
		}
		if how <= specific {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		if err != nil || q < 0 || q > 1 {
			q = 1
		}
		weight, specific = q, how
	}
	return weight, specific >= 0
}
