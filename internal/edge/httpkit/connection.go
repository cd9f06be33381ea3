package httpkit

import (
	"context"
	"net/http"
)

// Connection is what a listener needs to know of the requests on one of its connections.
type Connection interface {
	// ShowedKey reports that a request on it came with a valid API key.
	ShowedKey()
	// Received reports that the request under way has arrived whole.
	Received()
	// HangUp reports that the answer to come is the last one, and that the rest of its request is of no use.
	HangUp()
}

type connectionKey struct{}

// WithConnection puts the connection into the context of the requests on it.
func WithConnection(ctx context.Context, c Connection) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// ConnectionOf finds the connection of a request; it is nil when the listener named none.
func ConnectionOf(r *http.Request) Connection {
	c, _ := r.Context().Value(connectionKey{}).(Connection)
	return c
}

// hangUp makes a refusal the last answer of its connection: it goes out at once, and nobody waits for a body that is of
// no use.
func (x *Exchange) hangUp() {
	if x.r.ContentLength == 0 || x.r.ProtoMajor > 1 {
		return
	}
	x.w.Header()["Connection"] = closing
	if c := ConnectionOf(x.r); c != nil {
		c.HangUp()
	}
}

func (x *Exchange) showedKey() {
	if c := ConnectionOf(x.r); c != nil {
		c.ShowedKey()
	}
}

func (x *Exchange) received() {
	if c := ConnectionOf(x.r); c != nil {
		c.Received()
	}
}
