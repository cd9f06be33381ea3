package httpapi

import (
	"mime"
	"strconv"
	"strings"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// accepted chooses among the media types that a route can answer with, the first being what a caller without a wish gets. The
// most specific range that names a type decides how much it is wished for, as RFC 9110 has it.
func (x *exchange) accepted(types ...string) (string, error) {
	header := strings.Join(x.r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return types[0], nil
	}
	best, wish := "", 0.0
	for _, t := range types {
		if w := wished(header, t); w > wish {
			best, wish = t, w
		}
	}
	if best == "" {
		return "", problem.New(problem.NotAcceptable, "Accept names nothing that this can be answered with: %s", strings.Join(types, ", "))
	}
	return best, nil
}

// wished is the weight that an Accept header gives to a type, 0 for one that it leaves out.
func wished(header, name string) float64 {
	family, _, _ := strings.Cut(name, "/")
	weight, specific := 0.0, -1
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
	return weight
}
