package eventjson

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Parts of bodies, right and wrong. Bodies put together from them get past the syntax far more often than random bytes.
var (
	names = []string{
		"id", "meter", "type", "customer", "resource", "time", "quantity", "properties", "corrects", "reason",
		"specversion", "source", "subject", "data",
		"datacontenttype", "data_base64", "traceparent", "events", "qty", "", `\u0069d`, "é", `a\"b`, "a", "b", "c",
	}
	scalars = []string{
		`""`, `"a"`, `"é日"`, `"\ud83d\ude00"`, `"\/\n"`, `"\u001f\\"`, `"1.0"`, `"application/json"`,
		`"2026-11-15T02:10:00Z"`, `"2026-11-15T02:10:00.1234567+01:00"`,
		`0`, `-0`, `3`, `1.50`, `1e3`, `12E-1`, `1735561800000`, `1.7e12`, `0.00000000000001`, `1e26`, `1e41`, `true`,
		`false`, `null`,
	}
	faulty = []string{`"\ud83d"`, "\"\xff\"", "\"\n\"", `01`, `1.`, `nul`, ``, `{"a":1,"a":2}`, `,`, `]`}
	spaces = []string{"", "", "", " ", "\t \r"}
)

// value draws a JSON value; nearly always a valid one.
func value(t *rapid.T, depth int) string {
	switch kind := rapid.IntRange(0, 40).Draw(t, "kind"); {
	case kind == 0:
		return rapid.SampledFrom(faulty).Draw(t, "broken")
	case kind < 10 && depth < 3:
		return object(t, depth+1, 4)
	case kind < 12 && depth < 3:
		return "[" + value(t, depth+1) + "]"
	}
	return rapid.SampledFrom(scalars).Draw(t, "scalar")
}

// object draws members with distinct names, unless chance repeats one.
func object(t *rapid.T, depth, most int) string {
	chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, most, rapid.ID).Draw(t, "names")
	if len(chosen) > 0 && rapid.IntRange(0, 30).Draw(t, "repeat") == 0 {
		chosen = append(chosen, chosen[0])
	}
	var members []string
	for _, n := range chosen {
		s := rapid.SampledFrom(spaces).Draw(t, "space")
		members = append(members, s+`"`+n+`"`+s+":"+s+value(t, depth)+s)
	}
	return "{" + strings.Join(members, ",") + "}"
}

func TestAgainstReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string { return object(rt, 0, 10) }), 1, 4).Draw(rt,
			"events")
		array := "[" + strings.Join(events, ",") + "]"
		for _, body := range []string{events[0], array, `{"events":` + array + `}`, strings.Join(events, "\n")} {
			for _, m := range modes {
				compare(t, m, []byte(body))
			}
		}
	})
}
