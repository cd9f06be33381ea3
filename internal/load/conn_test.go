package load

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func senderTo(t *testing.T, address string) *Sender {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSender(context.Background(), mustWorkload(t, someShape),
		Target{URL: u, Keys: []string{"first", "the second one"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// One connection carries requests of every size and answers of both framings.
func TestPost(t *testing.T) {
	long := strings.Repeat("a long answer; ", 5000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength || r.Method != http.MethodPost ||
			r.URL.Path != "/base/v1/events" {
			t.Errorf("%s %s with %d of %d bytes: %v", r.Method, r.URL, len(body), r.ContentLength, err)
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, r.Header.Get("Authorization")+": ")
		if strings.Count(string(body), "evt_") > 1 {
			_, _ = io.WriteString(w, long)
		}
	}))
	defer server.Close()
	s := senderTo(t, server.URL+"/base")
	stream := s.w.NewStream(0)
	var b Batch
	for i, size := range []int{1, 1, 700, 2, 1, 3000} {
		stream.Fill(&b, size)
		status, body, err := s.Post(&b)
		if err != nil || status != http.StatusAccepted {
			t.Fatalf("status %d, %v", status, err)
		}
		want := []string{"Bearer first: ", "Bearer the second one: "}[i%2]
		if size > 1 {
			want += long
		}
		if string(body) != want {
			t.Errorf("answer of %d bytes to a batch of %d, want %d", len(body), size, len(want))
		}
	}
}

func TestPostToWhatIsNoServer(t *testing.T) {
	for name, answer := range map[string]string{
		"another protocol":  "220 ready\r\n\r\n",
		"a status of words": "HTTP/1.1 yes\r\n\r\n",
		"no length":         "HTTP/1.1 200 OK\r\n\r\n",
		"a bad length":      "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
		"a huge length":     "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
		"a bad chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"a long chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
		"half an answer":    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"nothing":           "",
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			go func() {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			}()
			s := senderTo(t, "http://"+listener.Addr().String())
			var b Batch
			s.w.NewStream(0).Fill(&b, 1)
			if _, _, err := s.Post(&b); err == nil {
				t.Error("no error")
			}
		})
	}
}
