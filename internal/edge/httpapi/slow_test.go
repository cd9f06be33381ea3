package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of this file run in bubbles whose clock stands still while anybody works: times are exact, however slow the
// machine.

// pause is between two bytes of a slow caller.
const pause = 500 * time.Millisecond

// trickle sends a byte at a time until all is sent or the connection is closed.
func trickle(conn net.Conn, text string) {
	for i := range len(text) {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
			return
		}
		<-time.After(pause)
	}
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d+) `)

// statuses lists those of all answers.
func statuses(answers string) (out []string) {
	for _, m := range statusLine.FindAllStringSubmatch(answers, -1) {
		out = append(out, m[1])
	}
	return out
}

// keyless is the head of a request without a key, whose body is to follow.
const keyless = "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n"

// A request has one deadline for its head and one for all of it, however its bytes arrive, in a lane and in net/http
// alike.
func TestSlowCallersAreCutOff(t *testing.T) {
	post, long := plainPost("a"), strings.Repeat("X-A: b\r\n", 1000)
	get := "GET /healthz HTTP/1.1\r\nHost: x\r\n"
	authorized := strings.Replace(keyless, "Host: x\r\n", "Host: x\r\nAuthorization: Bearer "+ingestToken+"\r\n", 1)
	for name, tc := range map[string]struct {
		first  string // sent at once and answered
		send   string // sent at once
		slowly string // sent after that, byte by byte
		want   []string
		after  time.Duration
	}{
		"silent":                        {"", "", "", nil, DefaultReadHeaderTimeout},
		"first line":                    {"", "", post, nil, DefaultReadHeaderTimeout},
		"head":                          {"", post[:30], post[30:], nil, DefaultReadHeaderTimeout},
		"malformed line, another route": {"", get[:1], get[1:4] + long, []string{"400"}, DefaultReadHeaderTimeout},
		"head of another route":         {"", get, long, nil, DefaultReadHeaderTimeout},
		"head that is not plain": {"", "POST /v1/events HTTP/1.1\r\nExpect: 100-continue\r\n", long, nil,
			DefaultReadHeaderTimeout},
		"head that is long": {"", post[:40] + "X-A: " + strings.Repeat("b", laneBuffer), long, nil,
			DefaultReadHeaderTimeout},
		"body": {"", authorized, strings.Repeat(" ", 3000), []string{"503"},
			DefaultReadTimeout},
		"long body": {"", strings.Replace(authorized, "3000", "300000", 1),
			strings.Repeat(" ", 3000), []string{"503"}, DefaultReadTimeout},
		"chunked body": {"", strings.Replace(authorized, "Content-Length: 3000",
			"Transfer-Encoding: chunked", 1) + "fff\r\n", strings.Repeat(" ", 3000), []string{"503"},
			DefaultReadTimeout},
		"head, then body": {"", authorized[:len(authorized)-12], authorized[len(authorized)-12:] +
			strings.Repeat(" ", 3000), []string{"503"}, DefaultReadTimeout},
		"second head": {post, post[:30], post[30:], []string{"200"}, DefaultReadHeaderTimeout},
		"first line of another route": {"", get[:1], "ET /" + long[:3] + strings.Repeat("b", 1000), nil,
			DefaultReadHeaderTimeout},
		"second first line":            {post, get[:10], get[10:] + long, []string{"200"}, DefaultReadHeaderTimeout},
		"header line of another route": {"", get + "X-A", strings.Repeat("b", 1000), nil, DefaultReadHeaderTimeout},
		"second head of another route": {post, get, long, []string{"200"}, DefaultReadHeaderTimeout},
		"second body": {post, authorized, strings.Repeat(" ", 3000), []string{"200", "503"},
			DefaultReadTimeout},
		"head after another route": {get + "\r\n", post[:30], post[30:], []string{"200"},
			DefaultReadHeaderTimeout},
		"malformed head without an end": {"", post[:26] + "no colon\r\nX: y\r\n", "Z", []string{"400"},
			DefaultReadHeaderTimeout},
	} {
		for _, way := range []int{throughLane, throughLibrary} {
			t.Run(fmt.Sprint(name, " ", way), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRoad(way)
					defer r.shutdown(t)
					conn := r.inner.dial()
					if tc.first != "" {
						exchangeOn(t, conn, tc.first, 200)
						<-time.After(DefaultIdleTimeout / 2) // which is nothing of the next request's time
					}
					began := time.Now()
					var sending sync.WaitGroup
					sending.Go(func() {
						if tc.send != "" {
							_, _ = io.WriteString(conn, tc.send)
						}
						trickle(conn, tc.slowly)
					})
					answers, _ := io.ReadAll(conn)
					took := time.Since(began)
					sending.Wait()
					want := tc.want
					if tc.first != "" {
						want = want[1:]
					}
					if got := statuses(string(answers)); !slices.Equal(got, want) {
						t.Errorf("answered %q, want %v", answers, want)
					}
					checkLibraryFree(t, string(answers))
					malformed := len(tc.want) > 0 &&
						tc.want[len(tc.want)-1] == "400" // net/http need not wait for the rest of it
					if took > tc.after+pause || took < tc.after && !malformed {
						t.Errorf("ended after %s, want %s", took, tc.after)
					}
				})
			})
		}
	}
}

// A request that is refused for its head is answered at once, with the last answer of its connection: nobody waits for
// its body, and the caller has a moment to read why.
func TestRefusalsWaitForNoBody(t *testing.T) {
	keyed := strings.Replace(keyless, "Host: x\r\n", "Host: x\r\nAuthorization: Bearer "+ingestToken+"\r\n", 1)
	for name, tc := range map[string]struct{ first, send, status string }{
		"no key":       {"", keyless, "401"},
		"no key, long": {"", strings.Replace(keyless, "3000", "200000", 1), "401"},
		"no key, chunked": {"", strings.Replace(keyless, "Content-Length: 3000", "Transfer-Encoding: chunked", 1),
			"401"},
		"no key, after one": {plainPost("a"), keyless, "401"},
		"bad key":           {"", strings.Replace(keyed, "tk_", "tk_x", 1), "401"},
		"another tenant": {"", strings.Replace(keyed, "Host: x\r\n", "Host: x\r\nTally-Tenant: other\r\n", 1),
			"403"},
		"wrong scope":    {"", strings.Replace(keyed, "/v1/events", "/v1/meters", 1), "403"},
		"nothing there":  {"", strings.Replace(keyed, "/v1/events", "/v1/nothing", 1), "404"},
		"another method": {"", strings.Replace(keyed, "POST", "PUT", 1), "405"},
		"too large":      {"", strings.Replace(keyed, "3000", "99999999", 1), "413"},
		"expects to go on": {"", strings.Replace(keyless, "Host: x\r\n", "Host: x\r\nExpect: 100-continue\r\n", 1),
			"401"},
		"some of it arrived": {"", keyless + strings.Repeat(" ", 1000), "401"},
	} {
		for _, way := range []int{throughLane, throughLibrary} {
			t.Run(fmt.Sprint(name, " ", way), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRoad(way)
					defer r.shutdown(t)
					conn := r.inner.dial()
					if tc.first != "" {
						exchangeOn(t, conn, tc.first, 200)
					}
					began := time.Now()
					var sending sync.WaitGroup
					sending.Go(func() {
						_, _ = io.WriteString(conn, tc.send)
						trickle(conn, strings.Repeat(" ", 2000))
					})
					buf := make([]byte, 4<<10)
					n, err := conn.Read(buf)
					if err != nil || !slices.Equal(statuses(string(buf[:n])), []string{tc.status}) {
						t.Errorf("answered %q, %v, want %s", buf[:n], err, tc.status)
					}
					if took := time.Since(began); took != 0 ||
						!strings.Contains(string(buf[:n]), "\r\nConnection: close\r\n") {
						t.Errorf("answered after %s: %q", took, buf[:n])
					}
					_, _ = io.Copy(io.Discard, conn)
					if took := time.Since(began); took > turnFor+pause {
						t.Errorf("ended after %s", took)
					}
					sending.Wait()
				})
			})
		}
	}
}

// A caller that does not read its answers is cut off, too, and one that was idle for longer than an answer may take is
// answered.
func TestAnswersHaveADeadlineOfTheirOwn(t *testing.T) {
	for _, way := range []int{throughLane, throughLibrary} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(way)
			defer r.shutdown(t)
			conn := r.inner.dial()
			for range 3 {
				exchangeOn(t, conn, plainPost("a"), 200)
				<-time.After(DefaultIdleTimeout - time.Second - DefaultIdleTimeout/exactness)
			}
			began := time.Now()
			if _, err := io.WriteString(conn, plainPost("b")); err != nil { // and its answer is not read
				t.Fatal(err)
			}
			synctest.Wait()
			<-time.After(DefaultWriteTimeout - DefaultWriteTimeout/exactness - pause)
			if got := r.api.Connections().Open; got != 1 {
				t.Errorf("after %s, %d connections are open", time.Since(began), got)
			}
			<-time.After(DefaultWriteTimeout/exactness + 2*pause)
			if got := r.api.Connections().Open; got != 0 {
				t.Errorf("after %s, %d connections are open", time.Since(began), got)
			}
		})
	}
}

// A connection without a request is closed when its time is over.
func TestIdleConnectionsEnd(t *testing.T) {
	for _, way := range []int{throughLane, throughLibrary} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(way)
			defer r.shutdown(t)
			conn := r.inner.dial()
			for range 5 {
				exchangeOn(t, conn, plainPost("a"), 200)
				<-time.After(DefaultIdleTimeout / exactness / 4)
			}
			began := time.Now()
			ended(t, conn)
			if took := time.Since(began); took < DefaultIdleTimeout*(exactness-2)/exactness ||
				took > DefaultIdleTimeout {
				t.Errorf("closed after %s", took)
			}
		})
	}
}

// Given callers in every state, when the server stops, then whole requests are answered, and nobody waits for the rest
// of others.
func TestADrainWaitsForNoRestOfARequest(t *testing.T) {
	for _, way := range []int{throughLane, throughLibrary} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(way)
			r.store.begun, r.store.release = make(chan struct{}, 10), make(chan struct{})
			silent := r.inner.dial()
			whole, late := r.inner.dial(), r.inner.dial()
			var slow []net.Conn
			var sending sync.WaitGroup
			defer sending.Wait()
			for _, text := range []string{plainPost("x"), "GET /healthz HTTP/1.1\r\nHost: x\r\n" +
				strings.Repeat("X-A: b\r\n", 1000), keyless + strings.Repeat(" ", 3000)} {
				conn := r.inner.dial()
				slow = append(slow, conn)
				at := max(strings.Index(text, "\r\n\r\n")+4, 10)
				if _, err := io.WriteString(conn, text[:at]); err != nil {
					t.Fatal(err)
				}
				sending.Go(func() { trickle(conn, text[at:]) })
			}
			// A large body goes through net/http, whatever the road.
			body := plainPost(strings.Repeat("y", 100) + `","x":"` + strings.Repeat(" ", 2*laneBuffer))
			if _, err := io.WriteString(late, body[:len(body)-1000]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(whole, plainPost("whole")); err != nil {
				t.Fatal(err)
			}
			<-r.store.begun
			synctest.Wait()
			r.api.Drain()
			began := time.Now()
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				r.shutdown(t)
			}()
			ended(t, silent)
			for _, conn := range slow {
				_, _ = io.Copy(io.Discard, conn)
			}
			answer, _ := io.ReadAll(late)
			if !strings.Contains(string(answer), "the server stops") {
				t.Errorf("the rest of a body that is late: %q", answer)
			}
			// net/http looks after its connections every half second.
			if took := time.Since(began); took > DefaultDrainReceive+2*pause {
				t.Errorf("those that were not whole were waited for %s", took)
			}
			select {
			case <-stopped:
				t.Error("a whole request was not waited for")
			default:
			}
			close(r.store.release)
			answerOn(t, whole, http.StatusOK)
			<-stopped
			if got := r.store.kept(); !slices.Equal(got, []string{"whole"}) {
				t.Errorf("recorded %v", got)
			}
		})
	}
}

// A request is answered when its last byte is there, however its lines end: nobody waits for more.
func TestWholeRequestsAreAnsweredAtOnce(t *testing.T) {
	head, body, _ := strings.Cut(plainPost("a"), "\r\n\r\n")
	for _, way := range []int{throughLane, throughLibrary} {
		for name, request := range map[string]string{
			"plain":               head + "\r\n\r\n" + body,
			"last line ends bare": head + "\n\r\n" + body,
			"blank line is bare":  head + "\r\n\n" + body,
			"both bare":           head + "\n\n" + body,
			"extra line end":      "\r\n" + head + "\r\n\r\n" + body,
			"extra line ends":     "\r\n\r\n" + head + "\r\n\r\n" + body,
		} {
			synctest.Test(t, func(t *testing.T) {
				r := newRoad(way)
				defer r.shutdown(t)
				conn := r.inner.dial()
				exchangeOn(t, conn, plainPost("first"), 200)
				began := time.Now()
				exchangeOn(t, conn, request, 200)
				if took := time.Since(began); took != 0 {
					t.Errorf("%s, road %d: answered after %s", name, way, took)
				}
			})
		}
	}
}
