package httpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// chunkedPost is a request of which the length is not known ahead.
func chunkedPost(body string, lines ...string) string {
	return "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ingestToken + "\r\n" +
		strings.Join(append(lines, ""), "\r\n") + "Transfer-Encoding: chunked\r\n\r\n" + body
}

// awkward is what callers, broken and hostile ones too, may send.
func awkward() map[string]string {
	post := plainPost("a")
	length := func(header string) string { return strings.Replace(post, "Content-Length: ", header, 1) }
	line := func(line string) string { return strings.Replace(post, "POST /v1/events HTTP/1.1\r\n", line, 1) }
	get := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	head, body, _ := strings.Cut(post, "\r\n\r\n")
	out := map[string]string{}
	for _, group := range []map[string]string{{
		// Plain requests, one and many.
		"plain":      post,
		"two in one": post + plainPost("b"),
		"many":       strings.Repeat(post, 50),
		"more headers": plainPost("a", "User-Agent: u", "X-Forwarded-For: 10.0.0.1", "Accept: */*",
			"Tally-Tenant: acme"),
		"another tenant": plainPost("a", "Tally-Tenant: other") + post,
		"request key": strings.Replace(plainPost("a", "Idempotency-Key: k"), `"id":"a"`, `"xx":"a"`,
			1),
		"form":            plainPost("a", "Content-Type: application/x-www-form-urlencoded"),
		"media type":      plainPost("a", "Content-Type: text/plain") + post,
		"not gzip":        plainPost("a", "Content-Encoding: gzip") + post,
		"bad json":        strings.Replace(post, `"c"}`, `"c"]`, 1) + post,
		"bad key":         strings.Replace(post, "Bearer tk_", "Bearer tk_x", 1) + post,
		"no key":          strings.Replace(post, "Authorization", "X-Authorization", 1) + post,
		"two keys":        plainPost("a", "Authorization: Bearer x") + post,
		"query":           strings.Replace(post, "/v1/events", "/v1/events?x=1", 1),
		"atomic":          strings.Replace(post, "/v1/events", "/v1/events?atomic=true", 1) + post,
		"atomic or what":  strings.Replace(post, "/v1/events", "/v1/events?atomic=maybe", 1) + post,
		"get":             get + post,
		"then get":        post + get + post,
		"options of all":  "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" + post,
		"get with a body": "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + post,
		"not found":       "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + post,
		"another method":  "BREW /v1/events HTTP/1.1\r\nHost: x\r\n\r\n" + post,
		"connect":         "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n" + post,
		"empty": head[:strings.Index(head, "Content-Length")] + "Content-Length: 0\r\n\r\n" +
			post,
		"binary cloudevent": strings.Replace(plainPost("a", "Ce-Id: 1", "Ce-Source: /s", "Ce-Type: t",
			"Ce-Subject: c", "Ce-Specversion: 1.0"), body, strings.Repeat(" ", len(body)-2)+"{}", 1) + post,
		"cloudevent twice over": plainPost("a", "Ce-Id: 1", "Content-Type: application/cloudevents+json") + post,
		"lower-case names": strings.NewReplacer("Host", "host", "Authorization", "authorization",
			"Content-Length", "content-length").Replace(post) + post,
		"spaces around a value":   plainPost("a", "X-A: \t b \t ") + post,
		"empty value":             plainPost("a", "X-A:", "X-B: ") + post,
		"name with an underscore": plainPost("a", "X_A: b") + post,
		"name with a dot":         plainPost("a", "X.A: b") + post,
		"value beyond ascii":      plainPost("a", "X-A: caf\u00e9") + post,
		"value with other bytes":  plainPost("a", "X-A: \xff\xfe") + post,
		"longer than a lane": plainPost(strings.Repeat("a", 200),
			"X-Long: "+strings.Repeat("x", laneBuffer)) + post,
		"body longer than a lane":     plainPost(strings.Repeat("a", laneBuffer)) + post,
		"as long as a first buffer":   padded(firstBuffer) + post,
		"longer than a first buffer":  padded(firstBuffer+1) + post,
		"as long as a lane":           padded(laneBuffer) + post,
		"one byte longer than a lane": padded(laneBuffer+1) + post,
		"head as long as first buffer": "POST /v1/events HTTP/1.1\r\nHost: x\r\nX-A: " +
			strings.Repeat("b", firstBuffer-42-4) + "\r\n\r\n" + post,
	}, {
		// Line ends.
		"bare line ends": strings.ReplaceAll(post, "\r\n", "\n") + post,
		"bare blank line": strings.Replace(post, "\r\nHost: x\r\n",
			"\r\nHost: x\r\nContent-Length: 0\n\n", 1),
		"last line ends bare":          head + "\n\r\n" + body + post,
		"blank line is bare":           head + "\r\n\n" + body + post,
		"both bare":                    head + "\n\n" + body + post,
		"first line ends bare":         line("POST /v1/events HTTP/1.1\n") + post,
		"one header ends bare":         strings.Replace(post, "Host: x\r\n", "Host: x\n", 1) + post,
		"carriage returns alone":       strings.ReplaceAll(post, "\r\n", "\r"),
		"carriage return in a value":   plainPost("a", "X-A: b\rc") + post,
		"two carriage returns":         strings.Replace(post, "Host: x\r\n", "Host: x\r\r\n", 1) + post,
		"folded header":                plainPost("a", "X-A: b\r\n c"),
		"folded with a tab":            plainPost("a", "X-A: b\r\n\tc") + post,
		"folded length":                length("Content-Length:\r\n "),
		"folded at first":              strings.Replace(post, "Host: x\r\n", " X: y\r\nHost: x\r\n", 1),
		"leading line end":             "\r\n" + post,
		"leading bare line end":        "\n" + post,
		"line end after a body":        post + "\r\n" + plainPost("b"),
		"bare line end after a body":   post + "\n" + plainPost("b"),
		"two line ends after a body":   post + "\r\n\r\n" + plainPost("b"),
		"three line ends after a body": post + "\r\n\r\n\r\n" + plainPost("b"),
		"line ends after many":         post + "\r\n" + post + "\r\n" + post + "\n\n" + post,
		"line end, then get":           post + "\r\n" + get + post,
		"line end, then the end":       post + "\r\n",
		"line ends, then the end":      post + "\r\n\r\n",
		"line end, then too little":    post + "\r\nGE",
		"line end after get":           get + "\r\n" + post,
		"line end in lane and library": post + "\r\n" + get + post + "\r\n" + post,
	}, {
		// Where a body ends.
		"chunked":                   chunkedPost("2\r\n[]\r\n0\r\n\r\n") + post,
		"chunked with an extension": chunkedPost("2;a=b;c\r\n[]\r\n0;z\r\n\r\n") + post,
		"chunked with a trailer":    chunkedPost("2\r\n[]\r\n0\r\nX-A: b\r\n\r\n", "Trailer: X-A") + post,
		"trailer not announced":     chunkedPost("2\r\n[]\r\n0\r\nX-A: b\r\n\r\n") + post,
		"forbidden trailer": chunkedPost("2\r\n[]\r\n0\r\nContent-Length: 9\r\n\r\n",
			"Trailer: Content-Length") + post,
		"chunked in many":         chunkedPost(strings.Repeat("1\r\n \r\n", 40)+"2\r\n[]\r\n0\r\n\r\n") + post,
		"chunked in hex":          chunkedPost("0000A\r\n        []\r\n0\r\n\r\n") + post,
		"bad chunk":               chunkedPost("2x\r\n[]\r\n0\r\n\r\n") + post,
		"negative chunk":          chunkedPost("-2\r\n[]\r\n0\r\n\r\n") + post,
		"huge chunk":              chunkedPost("fffffffffffffffff\r\n[]\r\n0\r\n\r\n") + post,
		"chunk with bare ends":    chunkedPost("2\n[]\n0\n\n") + post,
		"chunk that is too short": chunkedPost("3\r\n[]\r\n0\r\n\r\n") + post,
		"chunks that never end":   chunkedPost("2\r\n[]\r\n"),
		"chunked and a length":    plainPost("a", "Transfer-Encoding: chunked") + post,
		"chunked twice":           chunkedPost("2\r\n[]\r\n0\r\n\r\n", "Transfer-Encoding: chunked") + post,
		"gzip, chunked":           chunkedPost("2\r\n[]\r\n0\r\n\r\n", "Transfer-Encoding: gzip") + post,
		"another encoding":        plainPost("a", "Transfer-Encoding: gzip") + post,
		"identity":                plainPost("a", "Transfer-Encoding: identity") + post,
		"encoding in capitals": strings.Replace(chunkedPost("2\r\n[]\r\n0\r\n\r\n"), ": chunked",
			": CHUNKED", 1) + post,
		"encoding with a tab": strings.Replace(chunkedPost("2\r\n[]\r\n0\r\n\r\n"), ": chunked",
			": \x0bchunked", 1) + post,
		"chunked in 1.0": strings.Replace(chunkedPost("2\r\n[]\r\n0\r\n\r\n"), "HTTP/1.1",
			"HTTP/1.0", 1) + post,
		"two lengths":               plainPost("a", "Content-Length: 7") + post,
		"one length twice":          plainPost("a", fmt.Sprint("Content-Length: ", len(body))) + post,
		"lengths in one line":       length(fmt.Sprint("Content-Length: ", len(body), ", ")) + post,
		"signed length":             length("Content-Length: +") + post,
		"negative length":           length("Content-Length: -") + post,
		"length in hex":             length("Content-Length: 0x") + post,
		"length with zeros":         length("Content-Length: 000") + post,
		"length that is empty":      plainPost("a", "Content-Length:") + post,
		"huge length":               length("Content-Length: 99999999999999999999"),
		"too large":                 length("Content-Length: 99999999"),
		"no length":                 strings.Replace(post, "Content-Length", "X-Length", 1),
		"length with a space":       plainPost("a", "Content-Length : 3"),
		"length with an underscore": plainPost("a", "Content_Length: 3") + post,
	}, {
		// What is said about the connection.
		"keep-alive":           plainPost("a", "Connection: keep-alive") + post,
		"keep-alive in words":  plainPost("a", "Connection: keep-alive, x-a", "X-A: b") + post,
		"close":                plainPost("a", "Connection: close") + post,
		"close in capitals":    plainPost("a", "Connection: CLOSE") + post,
		"close among others":   plainPost("a", "Connection: keep-alive, close") + post,
		"upgrade":              plainPost("a", "Connection: upgrade", "Upgrade: h2c") + post,
		"upgrade to websocket": plainPost("a", "Connection: Upgrade", "Upgrade: websocket") + post,
		"continue":             plainPost("a", "Expect: 100-continue") + post,
		"continue in capitals": plainPost("a", "Expect: 100-CONTINUE") + post,
		"continue, no body":    "GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n" + post,
		"another expectation":  plainPost("a", "Expect: tea") + post,
		"empty expectation":    plainPost("a", "Expect:") + post,
		"expectation of get":   "GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n" + post,
		"expectation in 1.0":   strings.Replace(plainPost("a", "Expect: tea"), "HTTP/1.1", "HTTP/1.0", 1) + post,
		"second expectation":   post + plainPost("a", "Expect: tea") + post,
		"old version":          strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1) + post,
		"old, kept alive": strings.Replace(plainPost("a", "Connection: keep-alive"), "HTTP/1.1",
			"HTTP/1.0", 1) + post,
		"old, without a host":   strings.NewReplacer("HTTP/1.1", "HTTP/1.0", "Host: x\r\n", "").Replace(post) + post,
		"second version":        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"second version, named": strings.Replace(post, "HTTP/1.1", "HTTP/2.0", 1) + post,
		"third version":         strings.Replace(post, "HTTP/1.1", "HTTP/3.0", 1) + post,
		"version 1.2":           strings.Replace(post, "HTTP/1.1", "HTTP/1.2", 1) + post,
		"version 0.9":           "GET /healthz\r\n\r\n",
		"version with spaces":   strings.Replace(post, "HTTP/1.1", "HTTP/ 1.1", 1) + post,
		"version in lower case": strings.Replace(post, "HTTP/1.1", "http/1.1", 1) + post,
		"bad version":           strings.Replace(post, "HTTP/1.1", "HTTP/x.y", 1) + post,
	}, {
		// Heads that are not what they should be.
		"head too long":         plainPost("a", "X-Long: "+strings.Repeat("x", 64<<10)),
		"too many headers":      plainPost("a", strings.Repeat("X-A: b\r\n", 8000)+"X-A: b"),
		"first line too long":   line("POST /v1/events?" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n"),
		"second head too long":  post + plainPost("a", "X-Long: "+strings.Repeat("x", 64<<10)),
		"space before colon":    plainPost("a", "X-A : 3") + post,
		"no colon":              plainPost("a", "X-A") + post,
		"no name":               plainPost("a", ": b") + post,
		"name with a space":     plainPost("a", "X A: b") + post,
		"name with a control":   plainPost("a", "X\x01A: b") + post,
		"name beyond ascii":     plainPost("a", "X-\u00e9: b") + post,
		"zero byte in a value":  plainPost("a", "X-A: b\x00c") + post,
		"zero byte in a name":   plainPost("a", "X\x00A: b"),
		"zero byte in the line": line("POST /v1/ev\x00ents HTTP/1.1\r\n"),
		"zero bytes":            strings.Repeat("\x00", 100),
		"delete in a value":     plainPost("a", "X-A: b\x7f") + post,
		"no host":               strings.Replace(post, "Host: x\r\n", "", 1) + post,
		"empty host":            strings.Replace(post, "Host: x", "Host:", 1) + post,
		"two hosts":             plainPost("a", "Host: y"),
		"same host twice":       plainPost("a", "Host: x") + post,
		"bad host":              strings.Replace(post, "Host: x", "Host: x y", 1),
		"host in brackets":      strings.Replace(post, "Host: x", "Host: [::1]:80", 1) + post,
		"host with a slash":     strings.Replace(post, "Host: x", "Host: x/y", 1) + post,
		"absolute":              strings.Replace(post, "/v1/events", "http://x/v1/events", 1),
		"absolute, other host":  strings.Replace(post, "/v1/events", "http://y/v1/events", 1) + post,
		"absolute, no host": strings.NewReplacer("/v1/events", "http://y/v1/events", "Host: x\r\n", "").
			Replace(post) + post,
		"path in capitals":     strings.Replace(post, "/v1/events", "/V1/EVENTS", 1) + post,
		"path that is escaped": strings.Replace(post, "/v1/events", "/v1/%65vents", 1) + post,
		"bad escape":           strings.Replace(post, "/v1/events", "/v1/%zz", 1) + post,
		"path with dots":       strings.Replace(post, "/v1/events", "/v1/../v1/events", 1) + post,
		"two slashes":          strings.Replace(post, "/v1/events", "//v1/events", 1) + post,
		"fragment":             strings.Replace(post, "/v1/events", "/v1/events#x", 1) + post,
		"no path":              line("POST HTTP/1.1\r\n") + post,
		"two spaces":           line("POST  /v1/events HTTP/1.1\r\n") + post,
		"space at the end":     line("POST /v1/events HTTP/1.1 \r\n") + post,
		"tab in the line":      line("POST\t/v1/events HTTP/1.1\r\n") + post,
		"method in lower case": line("post /v1/events HTTP/1.1\r\n") + post,
		"empty method":         line(" /v1/events HTTP/1.1\r\n") + post,
		"bad method":           line("PO(ST /v1/events HTTP/1.1\r\n") + post,
		"not http":             "\x16\x03\x01\x02\x00",
		"not http at all":      "hello\r\nworld\r\n\r\n",
		"rubbish after a body": post + "rubbish\r\n\r\n",
		"less than said":       length("Content-Length: 1") + post,
		"more than said":       post + "x" + post,
	}, {
		// Ends.
		"cut in the head":   post[:40],
		"cut in the line":   post[:10],
		"cut before a body": post[:len(post)-len(body)],
		"cut in the body":   post[:len(post)-1],
		"cut in the second": post + post[:40],
		"nothing":           "",
		"a little more":     post + "GE",
		"too little":        "GE",
		"one byte":          "P",
	}} {
		maps.Copy(out, group)
	}
	return out
}

// padded is a plain request of exactly so many bytes.
func padded(size int) string {
	bare := plainPost("a", "X-A: ")
	return plainPost("a", "X-A: "+strings.Repeat("b", size-len(bare)))
}

// roads are all ways to one kind of server.
type roads [bare + 1]*road

func newRoads(t *testing.T) *roads {
	t.Helper()
	var all roads
	for way := range all {
		all[way] = newRoad(way)
		t.Cleanup(func() { all[way].shutdown(t) })
	}
	return &all
}

// alike sends the same, in pieces, on all roads and compares all that came of it. The library without a listener
// refuses in other words, but with the same status.
func (all *roads) alike(t *testing.T, whole string, pieces ...string) {
	t.Helper()
	bareAnswers, bareIDs := all[bare].play(t, whole)
	for _, way := range []int{throughLane, throughLibrary} {
		answers, ids := all[way].play(t, pieces...)
		if !slices.Equal(ids, bareIDs) || !slices.Equal(statuses(answers), statuses(bareAnswers)) {
			t.Fatalf("road %d, sent in %d pieces\nanswered %q\nnet/http %q\nrecorded %v, net/http %v", way, len(pieces),
				answers, bareAnswers, ids, bareIDs)
		}
		if other, _ := all[throughLibrary].play(t, whole); way == throughLane && answers != other {
			t.Fatalf("sent in %d pieces\nanswered in a lane %q\nand without       %q", len(pieces), answers, other)
		}
	}
}

// usualStride is between two bytes at which a case is cut; cutEverywhere are cut at each.
const usualStride = 7

var cutEverywhere = []string{"plain", "two in one", "get", "chunked", "continue", "another expectation", "both bare",
	"last line ends bare", "folded header",
	"line end after a body", "two line ends after a body", "line end in lane and library", "as long as a first buffer",
	"cut in the second"}

// Nobody can distinguish a lane from net/http: the same bytes, wherever they are cut, are answered with the same bytes,
// leave the connection in the same state and record the same events. And every answer is a problem with a request id,
// or none.
func TestLanesCannotBeToldFromTheLibrary(t *testing.T) {
	cases := awkward()
	if len(cases) < 150 {
		t.Errorf("%d cases", len(cases))
	}
	for name, sent := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // net/http waits before it closes some of these
				all := newRoads(t)
				all.alike(t, sent, sent)
				want, recorded := all[throughLibrary].play(t, sent)
				// The sequence of cuts begins at another byte in each case, so that together they are made everywhere.
				from, stride := 1+len(name)%usualStride, usualStride
				if slices.Contains(cutEverywhere, name) {
					from, stride = 1, 1
				}
				for at := from; at < min(len(sent), 1000); at += stride {
					got, ids := all[throughLane].play(t, sent[:at], sent[at:])
					if got != want || !slices.Equal(ids, recorded) {
						t.Fatalf("cut at %d\nanswered %q\n    want %q\nrecorded %v, want %v", at, got, want,
							ids, recorded)
					}
				}
			})
		})
	}
}
