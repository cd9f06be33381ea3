package httpkit

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// Media types that edges speak.
const (
	MediaJSON   = "application/json"
	MediaCSV    = "text/csv"
	MediaNDJSON = "application/x-ndjson" // a document a line
	MediaYAML   = "application/yaml"
	MediaForm   = "application/x-www-form-urlencoded"

	mediaProblem = "application/problem+json"
)

var justJSON = []string{MediaJSON}

// choose settles what a read is answered with.
func (x *Exchange) choose(rt *Route) (err error) {
	if rt.Method != http.MethodGet || rt.AnyMedia {
		return nil
	}
	types := rt.Media
	if types == nil {
		types = justJSON
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
func (x *Exchange) accepted(types ...string) (string, error) {
	header := strings.Join(x.r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return types[0], nil
	}
	best, wish := "", 0.0
	for _, t := range types {
		w, named := wished(header, t)
		if t == MediaJSON && !named {
			w, _ = wished(header, mediaProblem)
		}
		if w > wish {
			best, wish = t, w
		}
	}
	if best == "" {
		return "", problem.New(problem.NotAcceptable, "Accept names nothing that this can be answered with: %s",
			strings.Join(types, ", "))
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
