package eventjson

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// The reference: the same rules over encoding/json's tokens and math/big, with no care for speed. It shares no code
// with the decoder but the types that both fill.

// node is a JSON value with its members in order.
type node struct {
	value    any // string, json.Number, bool, nil, or json.Delim of its opening
	names    []string
	children []node
}

func (n *node) is(delim json.Delim) bool { return n.value == delim }

var (
	surrogatePair = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	surrogate     = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)
	// Package time also takes one digit for the hour, a comma, and offsets of a day.
	rfc3339    = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// tree parses one document, or reports that the body is malformed.
func tree(body []byte) (node, bool) {
	if !json.Valid(body) || !utf8.Valid(body) {
		return node{}, false
	}
	escapes := strings.ReplaceAll(string(body), `\\`, "  ")
	if surrogate.MatchString(surrogatePair.ReplaceAllString(escapes, "  ")) {
		return node{}, false
	}
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	return branch(tokens, 0)
}

func branch(tokens *json.Decoder, depth int) (node, bool) {
	token, err := tokens.Token()
	if err != nil {
		return node{}, false
	}
	n := node{value: token}
	if n.is('{') || n.is('[') {
		if depth == MaxDepth {
			return n, false
		}
		for tokens.More() {
			if n.is('{') {
				name, _ := tokens.Token()
				if slices.Contains(n.names, name.(string)) {
					return n, false
				}
				n.names = append(n.names, name.(string))
			}
			child, ok := branch(tokens, depth+1)
			if !ok {
				return n, false
			}
			n.children = append(n.children, child)
		}
		if _, err := tokens.Token(); err != nil {
			return n, false
		}
	}
	return n, true
}

// mode is one of the four decoders.
type mode struct {
	name      string
	decode    func([]byte, []usage.Event) (Batch, error)
	reference func([]byte) (Batch, problem.Code)
}

var modes = []mode{
	{"json", Decode, referenceJSON},
	{"lines", DecodeLines, referenceLines},
	{"cloud", DecodeCloudEvent, referenceCloud},
	{"clouds", DecodeCloudEvents, referenceClouds},
}

func referenceJSON(body []byte) (Batch, problem.Code) {
	n, ok := tree(body)
	switch {
	case !ok:
		return Batch{}, problem.Malformed
	case n.is('['):
		return referenceEvents(n.children, referenceEvent)
	case !n.is('{'):
		return Batch{}, problem.Malformed
	case !slices.Contains(n.names, "events"):
		return Batch{Single: true, Events: []usage.Event{referenceEvent(n)}}, ""
	case len(n.names) > 1 || !n.children[0].is('['):
		return Batch{}, problem.Malformed
	}
	return referenceEvents(n.children[0].children, referenceEvent)
}

func referenceLines(body []byte) (Batch, problem.Code) {
	var nodes []node
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if len(bytes.Trim(line, " \t\r")) == 0 {
			continue
		}
		n, ok := tree(line)
		if !ok {
			return Batch{}, problem.Malformed
		}
		nodes = append(nodes, n)
	}
	return referenceEvents(nodes, referenceEvent)
}

func referenceCloud(body []byte) (Batch, problem.Code) {
	n, ok := tree(body)
	if !ok || !n.is('{') {
		return Batch{}, problem.Malformed
	}
	return Batch{Single: true, Events: []usage.Event{referenceCloudEvent(n)}}, ""
}

func referenceClouds(body []byte) (Batch, problem.Code) {
	n, ok := tree(body)
	if !ok || !n.is('[') {
		return Batch{}, problem.Malformed
	}
	return referenceEvents(n.children, referenceCloudEvent)
}

func referenceEvents(nodes []node, read func(node) usage.Event) (Batch, problem.Code) {
	switch {
	case len(nodes) == 0:
		return Batch{}, problem.Malformed
	case len(nodes) > MaxEvents:
		return Batch{}, problem.TooLarge
	}
	var b Batch
	for _, n := range nodes {
		b.Events = append(b.Events, read(n))
	}
	return b, ""
}

// wrong marks the event; only the path of the first problem is compared.
func wrong(ev *usage.Event, path string) { invalid(ev, path, "wrong") }

func referenceEvent(n node) usage.Event {
	ev := usage.Event{Quantity: amount.One}
	if !n.is('{') {
		wrong(&ev, "event")
		return ev
	}
	for i, name := range n.names {
		v := n.children[i]
		switch name {
		case "id":
			referenceString(&ev, name, v, &ev.ID, 0)
		case "corrects":
			referenceString(&ev, name, v, &ev.Corrects, 0)
		case "reason":
			referenceString(&ev, name, v, &ev.Reason, 0)
		case "meter":
			referenceString(&ev, name, v, &ev.Meter, usage.GivenMeter)
		case "type":
			referenceString(&ev, name, v, &ev.Type, usage.GivenType)
		case "customer":
			referenceString(&ev, name, v, &ev.Customer, usage.GivenCustomer)
		case "resource":
			referenceString(&ev, name, v, &ev.Resource, usage.GivenResource)
		case "quantity":
			referenceQuantity(&ev, v)
		case "time":
			referenceTime(&ev, v)
		case "properties":
			referenceProperties(&ev, name, v)
		default:
			wrong(&ev, brief(name))
		}
	}
	return ev
}

func referenceCloudEvent(n node) usage.Event {
	ev := usage.Event{Quantity: amount.One}
	if !n.is('{') {
		wrong(&ev, "event")
		return ev
	}
	extension := regexp.MustCompile(`^[a-z0-9]+$`)
	var version, source, contentType string
	for i, name := range n.names {
		v := n.children[i]
		if v.value == nil && (extension.MatchString(name) || name == "data_base64") {
			continue
		}
		switch name {
		case "id":
			referenceString(&ev, name, v, &ev.ID, 0)
		case "specversion":
			referenceString(&ev, name, v, &version, 0)
		case "source":
			referenceString(&ev, name, v, &source, 0)
		case "datacontenttype":
			referenceString(&ev, name, v, &contentType, 0)
		case "type":
			referenceString(&ev, name, v, &ev.Type, usage.GivenType)
		case "subject":
			referenceString(&ev, name, v, &ev.Customer, usage.GivenCustomer)
		case "time":
			if _, ok := v.value.(string); !ok {
				v = node{value: json.Delim('[')} // a number is not a time here
			}
			referenceTime(&ev, v)
		case "data":
			referenceProperties(&ev, name, v)
		case "data_base64", "meter", "customer", "resource", "quantity", "properties", "corrects", "reason":
			wrong(&ev, name)
		default:
			if !extension.MatchString(name) || v.is('{') || v.is('[') {
				wrong(&ev, brief(name))
			}
		}
	}
	required := []struct {
		path string
		ok   bool
	}{
		{"specversion", version == "1.0"}, {"id", ev.ID != ""},
		{"source", source != "" && !strings.Contains(source, " ")}, {"type", ev.Type != ""},
		{"subject", ev.Customer != ""}, {"datacontenttype", contentType == "" || jsonType.MatchString(contentType)},
	}
	for _, r := range required {
		if !r.ok {
			wrong(&ev, r.path)
		}
	}
	if source != "" && ev.ID != "" {
		ev.ID = source + " " + ev.ID
	}
	return ev
}

func referenceString(ev *usage.Event, path string, v node, to *string, given usage.Given) {
	s, ok := v.value.(string)
	if !ok || s == "" {
		wrong(ev, path)
		return
	}
	*to = s
	ev.Given |= given
}

func referenceQuantity(ev *usage.Event, v node) {
	text, isString := v.value.(string)
	if number, ok := v.value.(json.Number); ok {
		text = string(number)
	} else if !isString {
		wrong(ev, "quantity")
		return
	}
	plain, ok := plainNumber(text)
	if !ok || len(text) > 64 {
		wrong(ev, "quantity")
		return
	}
	value, _ := new(big.Rat).SetString(plain)
	limit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(26), nil))
	if new(big.Rat).Abs(value).Cmp(limit) >= 0 {
		wrong(ev, "quantity")
		return
	}
	ev.Given |= usage.GivenQuantity
	if _, decimals, _ := strings.Cut(plain, "."); len(decimals) > amount.Decimals {
		ev.Quantity, ev.Unrounded = amount.Zero, plain
		return
	}
	ev.Quantity, _ = amount.Parse(plain)
}

func referenceTime(ev *usage.Event, v node) {
	var at calendar.Micros
	switch value := v.value.(type) {
	case string:
		t, err := time.Parse(time.RFC3339, value)
		if err != nil || !rfc3339.MatchString(value) {
			wrong(ev, "time")
			return
		}
		at = calendar.FromTime(t)
	case json.Number:
		plain, _ := plainNumber(string(value))
		millis, err := strconv.ParseInt(plain, 10, 64)
		if err != nil || millis < 100_000_000_000 || millis > int64(calendar.MaxMicros)/1000 {
			wrong(ev, "time")
			return
		}
		at = calendar.Micros(millis * 1000)
	default:
		wrong(ev, "time")
		return
	}
	if !at.Valid() {
		wrong(ev, "time")
		return
	}
	ev.Time = at
	ev.Given |= usage.GivenTime
}

func referenceProperties(ev *usage.Event, path string, v node) {
	if !v.is('{') {
		wrong(ev, path)
		return
	}
	var members []string
	texts := map[string]string{}
	flat := true
	for i, name := range v.names {
		text, ok := referenceScalar(v.children[i])
		if !ok {
			wrong(ev, path+"."+brief(name))
			flat = false
		}
		texts[name] = text
	}
	if !flat {
		return
	}
	names := slices.Clone(v.names)
	slices.Sort(names)
	for _, name := range names {
		members = append(members, quoted(name)+":"+texts[name])
	}
	canonical := "{" + strings.Join(members, ",") + "}"
	switch {
	case len(members) == 0:
	case len(members) > 64 || len(canonical) > usage.MaxProperties:
		wrong(ev, path)
	default:
		ev.Properties = canonical
		ev.Given |= usage.GivenProperties
	}
}

func referenceScalar(v node) (string, bool) {
	switch value := v.value.(type) {
	case string:
		return quoted(value), true
	case json.Number:
		return plainNumber(string(value))
	case bool:
		return strconv.FormatBool(value), true
	case nil:
		return "null", true
	}
	return "", false
}

var (
	controls = regexp.MustCompile(`[\x00-\x1f]`)
	jsonType = regexp.MustCompile(`(?i)^\s*[^/;]*/([^;]*\+)?json\s*(;|$)`)
)

func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
	s = controls.ReplaceAllStringFunc(s, func(c string) string {
		return `\u00` + strconv.FormatInt(int64(c[0])>>4, 16) + strconv.FormatInt(int64(c[0])&15, 16)
	})
	return `"` + s + `"`
}

// plainNumber writes a number without exponent and superfluous zeros, unless that takes more than 40 digits.
func plainNumber(text string) (string, bool) {
	if !jsonNumber.MatchString(text) {
		return "", false
	}
	if strings.Trim(strings.FieldsFunc(text, func(r rune) bool { return r|0x20 == 'e' })[0], "-0.") == "" {
		return "0", true
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		// Beyond this an exponent cannot be made up for by the digits before it, and big.Rat takes long.
		if exponent, err := strconv.Atoi(text[at+1:]); err != nil || max(exponent, -exponent) > len(text)+50 {
			return "", false
		}
	}
	value, _ := new(big.Rat).SetString(text)
	plain := value.FloatString(len(text) * 3)
	plain = strings.TrimSuffix(strings.TrimRight(plain, "0"), ".")
	if exact, _ := new(big.Rat).SetString(plain); exact.Cmp(value) != 0 {
		return "", false // more decimals than that are more than 40 digits
	}
	if len(plain)-strings.Count(plain, ".")-strings.Count(plain, "-") > 40 {
		return "", false
	}
	return plain, true
}
