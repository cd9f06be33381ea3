package webhook

import (
	"context"
	"sync"
)

// gate bounds how many are inside under one name. Its zero value is ready for use.
type gate struct {
	mu    sync.Mutex // guards rooms and their users
	rooms map[string]*room
}

type room struct {
	places chan struct{} // one element for each who is inside
	users  int           // inside or waiting; a room without any is forgotten
}

// enter waits for a place under the name. bound is the same for a name every time.
func (g *gate) enter(ctx context.Context, name string, bound int) (leave func(), err error) {
	r := g.use(name, bound)
	select {
	case r.places <- struct{}{}:
		return func() {
			<-r.places
			g.leave(name, r)
		}, nil
	case <-ctx.Done():
		g.leave(name, r)
		return nil, &fault{"the delivery was stopped before its turn came", context.Cause(ctx)}
	}
}

func (g *gate) use(name string, bound int) *room {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.rooms[name]
	if r == nil {
		if g.rooms == nil {
			g.rooms = map[string]*room{}
		}
		r = &room{places: make(chan struct{}, bound)}
		g.rooms[name] = r
	}
	r.users++
	return r
}

func (g *gate) leave(name string, r *room) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(g.rooms, name)
	}
}
