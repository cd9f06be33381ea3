package httpapi

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// refusedOn reads the answer to a connection that found no place.
func refusedOn(t *testing.T, conn net.Conn, word string) {
	t.Helper()
	answers, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	checkLibraryFree(t, string(answers))
	a, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answers)), nil)
	if err != nil {
		t.Fatalf("answered %q: %v", answers, err)
	}
	defer a.Body.Close()
	body, _ := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusServiceUnavailable || !a.Close || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(body), word) {
		t.Errorf("answered %q, want a word of %s", answers, word)
	}
}

// Given as many connections as there are places, all of callers with a key, then a newcomer is refused, and has a place
// as soon as one is free.
func TestConnectionsAreBounded(t *testing.T) {
	for _, way := range []int{throughLane, throughLibrary} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(way, func(o *Options) { o.MaxConnections = 3 })
			defer r.shutdown(t)
			var conns []net.Conn
			for range 3 {
				conn := r.inner.dial()
				exchangeOn(t, conn, plainPost("a"), 200)
				conns = append(conns, conn)
			}
			for range 5 { // those that are turned away take no place
				refusedOn(t, r.inner.dial(), "http.max_connections")
			}
			exchangeOn(t, conns[0], plainPost("a"), 200)
			if err := conns[1].Close(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			exchangeOn(t, r.inner.dial(), plainPost("b"), 200)
			if got, want := r.api.Connections(), (ConnectionCounts{Open: 3, Refused: 5}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// Given that callers without a key have taken all places, when a newcomer comes, then the one that is there for longest
// goes. Those with a key stay, and nobody without one can push them out.
func TestCallersWithoutAKeyMakeRoom(t *testing.T) {
	for _, way := range []int{throughLane, throughLibrary} {
		synctest.Test(t, func(t *testing.T) {
			r := newRoad(way, func(o *Options) { o.MaxConnections = 4 })
			defer r.shutdown(t)
			working := r.inner.dial()
			exchangeOn(t, working, plainPost("a"), 200)
			var slow []net.Conn
			for i, begun := range []string{"POST /v1/ev", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", keyless} {
				conn := r.inner.dial()
				if _, err := io.WriteString(conn, begun); err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					answerOn(t, conn, 200) // which takes no key, and shows none
				}
				slow = append(slow, conn)
				synctest.Wait()
			}
			for i := range slow {
				newcomer := r.inner.dial()
				synctest.Wait()
				ended(t, slow[i])
				exchangeOn(t, newcomer, plainPost("b"), 200)
			}
			exchangeOn(t, working, plainPost("c"), 200)
			refusedOn(t, r.inner.dial(), "http.max_connections")
			if got, want := r.api.Connections(), (ConnectionCounts{Open: 4, Refused: 1, Displaced: 3}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// fromAddress is a connection of a caller elsewhere.
type fromAddress struct {
	net.Conn
	addr string
}

func (c *fromAddress) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.addr), Port: 1} }

// An address has its own bound, if there is one; a network of IPv6 counts as an address.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoad(throughLane, func(o *Options) { o.MaxConnectionsPerAddress = 2 })
		defer r.shutdown(t)
		dial := func(addr string) net.Conn {
			mine, theirs := net.Pipe()
			r.inner.conns <- &fromAddress{theirs, addr}
			return mine
		}
		first := dial("10.0.0.1")
		exchangeOn(t, first, plainPost("a"), 200)
		exchangeOn(t, dial("::ffff:10.0.0.1"), plainPost("a"), 200) // the same, as a listener of both kinds shows it
		refusedOn(t, dial("10.0.0.1"), "http.max_connections_per_address")
		exchangeOn(t, dial("10.0.0.2"), plainPost("a"), 200)
		exchangeOn(t, dial("2001:db8::1"), plainPost("a"), 200)
		exchangeOn(t, dial("2001:db8::2"), plainPost("a"), 200)
		refusedOn(t, dial("2001:db8::3"), "http.max_connections_per_address")
		exchangeOn(t, dial("2001:db8:0:1::1"), plainPost("a"), 200)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		exchangeOn(t, dial("10.0.0.1"), plainPost("a"), 200)
		if got := r.api.Connections(); got.Crowded != 2 || got.Refused != 0 || got.Open != 6 {
			t.Errorf("got %+v", got)
		}
	})
}

// Those who are turned away and do not hang up hold up neither the others nor a stop.
func TestTurningAwayHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoad(throughLane, func(o *Options) { o.MaxConnections = 1 })
		working := r.inner.dial()
		exchangeOn(t, working, plainPost("a"), 200)
		began := time.Now()
		var away []net.Conn
		for range 3 * maxTurning {
			away = append(away, r.inner.dial()) // and reads nothing
		}
		exchangeOn(t, working, plainPost("a"), 200)
		if took := time.Since(began); took != 0 {
			t.Errorf("the others waited for %s", took)
		}
		for _, conn := range away {
			_, _ = io.Copy(io.Discard, conn)
		}
		if took := time.Since(began); took > turnFor {
			t.Errorf("they stayed for %s", took)
		}
		r.shutdown(t)
	})
}

// A server that can take no connection for want of descriptors says so where an operator sees it, once when that begins
// and once when it is over, however often it fails in between.
func TestWantOfDescriptorsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRoad(throughLane, func(o *Options) {
			o.Logger, o.MaxConnections = slog.New(slog.NewTextHandler(&log, nil)), 77
		})
		exchangeOn(t, r.inner.dial(), plainPost("a"), 200)
		for range 100 { // connections end and make room for one more each
			r.inner.errs <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
			conn := r.inner.dial()
			exchangeOn(t, conn, plainPost("a"), 200)
			_ = conn.Close()
		}
		<-time.After(acceptedFor)
		exchangeOn(t, r.inner.dial(), plainPost("a"), 200)
		r.inner.errs <- &net.OpError{Op: "accept", Err: syscall.EINTR}
		r.shutdown(t)
		begun, over := strings.Count(log.String(), "cannot be accepted"), strings.Count(log.String(), "accepted again")
		if begun != 2 || over != 1 || strings.Count(log.String(), "\n") != 3 {
			t.Errorf("logged\n%s", log.String())
		}
		for _, want := range []string{"open=1 ", "http.max_connections=77", "ulimit -n", "failures=100",
			"it is tried again"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s is not logged:\n%s", want, log.String())
			}
		}
	})
}
