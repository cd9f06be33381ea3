// Package yield lets work that goes on for long step aside for callers that wait on the network.
//
// runtime.Gosched does not do that. It lets goroutines run that are ready, and one whose request has come in is not: it
// becomes ready when a processor asks the network poller, and a processor does so when it has nothing else to run, or
// the runtime's monitor does after ten milliseconds. Two goroutines that yield to one another all the time keep a
// machine of two processors from ever asking.
//
// It owns a few pipes of the process, for good, and never fails: where there is no pipe it does what Gosched does.
package yield

import (
	"os"
	"runtime"
)

// pipe has both its ends in the network poller.
type pipe struct{ r, w *os.File }

// kept is how many pipes are kept for the next that yield. More can yield at once, each with a pipe made for the
// occasion.
const kept = 8

var pipes = make(chan *pipe, kept)

// ToNetwork gives way to goroutines whose connections have something for them. It waits for a byte that is sent only
// after it has begun to wait, so that the network poller must be asked for it, and finds all the others that are ready
// there.
func ToNetwork() {
	p := take()
	if p == nil {
		runtime.Gosched()
		return
	}
	go p.send()
	var b [1]byte
	if _, err := p.r.Read(b[:]); err != nil {
		_ = p.r.Close() // and the other end is closed already
		return
	}
	select {
	case pipes <- p:
	default:
		_, _ = p.r.Close(), p.w.Close() // there is nothing in it to lose
	}
}

func take() *pipe {
	select {
	case p := <-pipes:
		return p
	default:
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	return &pipe{r, w}
}

// send runs when ToNetwork waits, or at the same time on a processor that had nothing to do, which asks the poller
// anyway.
func (p *pipe) send() {
	if _, err := p.w.Write([]byte{0}); err != nil {
		_ = p.w.Close() // so that the other end does not wait forever
	}
}
