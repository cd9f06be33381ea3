package sinks

import (
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/sink"
)

const (
	// keepIdle is how long a carrier is kept open when its sink has nothing to do. Rows that trickle in would else cost
	// a connection each, with its handshakes; a receiver that hears nothing for longer is better off without one.
	keepIdle = time.Minute
	// maxIdle is how many are kept. Each may have a connection to every broker of a cluster; those of sinks that are
	// at work are bounded by MaxWorkers.
	maxIdle = 100
)

// idleCarriers are the carriers of sinks that had nothing left to do. One whose last delivery failed is never among
// them: the next attempt begins anew.
type idleCarriers struct {
	most int

	mu  sync.Mutex    // guards all
	all []idleCarrier // the one that is idle for longest first
}

type idleCarrier struct {
	of      place
	carrier Carrier
	sink    sink.Sink // that it was made for
	since   time.Time
}

// take returns the carrier that is kept for a sink, if there is one.
func (c *idleCarriers) take(p place) (Carrier, sink.Sink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.all {
		if one := c.all[i]; one.of == p {
			c.all = append(c.all[:i], c.all[i+1:]...)
			return one.carrier, one.sink
		}
	}
	return nil, sink.Sink{}
}

// add keeps a carrier, and returns the one that has to make room for it, if one has.
func (c *idleCarriers) add(one idleCarrier) (oldest Carrier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
	if len(c.all) > c.most {
		oldest = c.all[0].carrier
		c.all = append(c.all[:0], c.all[1:]...)
	}
	return oldest
}

// idleSince takes out those that are idle since a time or longer.
func (c *idleCarriers) idleSince(at time.Time) (out []Carrier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.all) > 0 && !c.all[0].since.After(at) {
		out = append(out, c.all[0].carrier)
		c.all = append(c.all[:0], c.all[1:]...)
	}
	return out
}
