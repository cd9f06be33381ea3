package versus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/load"
)

const (
	slowServerCommand = "slow-server"
	slowCommand       = "slow-connections"
)

// slowServerJob is the job of the process with the server.
type slowServerJob struct {
	Dir   string     `json:"dir"`
	Shape load.Shape `json:"shape"`
}

// slowServerSays is where the server is, first, and then its memory whenever it is asked.
type slowServerSays struct {
	URL    string   `json:"url,omitempty"`
	Keys   []string `json:"keys,omitempty"`
	Memory int64    `json:"memory,omitempty"` // RssAnon
}

func newSlowServerCommand() *cobra.Command {
	return newChildCommand(slowServerCommand, "The server of slow",
		func(ctx context.Context, job slowServerJob, commands *bufio.Scanner, out io.Writer) (err error) {
			w, err := load.NewWorkload(job.Shape)
			if err != nil {
				return err
			}
			s, err := startEngineHTTP(ctx, &bench{dir: job.Dir, w: w})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			say := json.NewEncoder(out)
			if err := say.Encode(slowServerSays{URL: s.to.URL.String(), Keys: s.to.Keys}); err != nil {
				return err
			}
			for commands.Scan() {
				if err := say.Encode(slowServerSays{Memory: anonymous()}); err != nil {
					return err
				}
			}
			return commands.Err()
		})
}

// slowJob is the job of the process with the slow connections.
type slowJob struct {
	URL         string        `json:"url"`
	Connections int           `json:"connections"`
	Pace        time.Duration `json:"pace"`
	Spread      time.Duration `json:"spread"`
}

// slowSays is that all connections are there, or what became of them.
type slowSays struct {
	Begun  bool  `json:"begun,omitempty"`
	Open   int64 `json:"open,omitempty"`
	Closed int64 `json:"closed,omitempty"` // by the server
}

func newSlowCommand() *cobra.Command {
	return newChildCommand(slowCommand, "The slow connections of slow",
		func(ctx context.Context, job slowJob, commands *bufio.Scanner, out io.Writer) error {
			at, err := url.Parse(job.URL)
			if err != nil {
				return fmt.Errorf("server: %w", err)
			}
			// without a pace of its own: it lives on what is left
			if err := (&callerJob{}).fromElsewhere(); err != nil {
				return err
			}
			say := json.NewEncoder(out)
			for commands.Scan() {
				t := &tricklers{addr: at.Host, pace: job.Pace, spread: job.Spread,
					dialing: make(chan struct{}, maxDialing)}
				ctx, stop := context.WithCancel(ctx)
				t.start(ctx, job.Connections)
				if err := say.Encode(slowSays{Begun: true}); err != nil {
					stop()
					return err
				}
				commands.Scan()
				said := slowSays{Open: t.open.Load(), Closed: t.closed.Load()}
				stop()
				t.running.Wait()
				if err := say.Encode(said); err != nil {
					return err
				}
			}
			return commands.Err()
		})
}

const (
	// maxDialing bounds the connections that are made at once: a listener's queue is not what is measured.
	maxDialing = 64
	// perAddress is how many connections come from one loopback address, of which each has some 28,000 ports.
	perAddress = 10_000
)

// slowRequests are what the connections send: what is in the first part at once, the rest byte by byte.
var slowRequests = [][2]string{
	{"", "POST /v1/events HTTP/1.1\r\nHost: slow\r\nX-Patience: none at all, and more of it\r\n"},
	{"POST /v1/events HTTP/1.1\r\nHost: slow\r\nContent-Length: 3000\r\n\r\n",
		"[                                                  "},
	{"GET /v1/counters HTTP/1.1\r\n", "Host: slow\r\nX-Patience: none at all, and more of it\r\n"},
}

// tricklers are slow connections, as many as there should be.
type tricklers struct {
	addr    string
	pace    time.Duration
	spread  time.Duration
	dialing chan struct{}
	running sync.WaitGroup

	open, closed atomic.Int64
}

// start returns when each has been open.
func (t *tricklers) start(ctx context.Context, connections int) {
	var begun sync.WaitGroup
	begun.Add(connections)
	for i := range connections {
		t.running.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first()
			select {
			case <-time.After(t.spread * time.Duration(i) / time.Duration(connections)):
			case <-ctx.Done():
			}
			for ctx.Err() == nil {
				t.live(ctx, i, first)
			}
		})
	}
	begun.Wait()
}

// live is the life of one connection.
func (t *tricklers) live(ctx context.Context, i int, opened func()) {
	t.dialing <- struct{}{}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i/perAddress))}}
	conn, err := dialer.DialContext(ctx, "tcp", t.addr)
	<-t.dialing
	if err != nil {
		select { // the server cannot take it now
		case <-time.After(t.pace):
		case <-ctx.Done():
		}
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	t.open.Add(1)
	defer t.open.Add(-1)
	opened()
	request := slowRequests[i%len(slowRequests)]
	if _, err := io.WriteString(conn, request[0]); err != nil {
		t.closed.Add(1)
		return
	}
	var answer [512]byte
	for sent := 0; ctx.Err() == nil; sent++ {
		at := sent % len(request[1])
		if _, err := io.WriteString(conn, request[1][at:at+1]); err != nil {
			break
		}
		_ = conn.SetReadDeadline(time.Now().Add(t.pace))
		if _, err := conn.Read(answer[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			break // an answer or the end
		}
	}
	if ctx.Err() == nil {
		t.closed.Add(1)
	}
}
