// Package client is the public Go client of Tallystick: it sends usage
// events and reads the ledger over the HTTP API, with the standard library
// alone.
//
// It owns encoding, compression, retries and the identity of what it sends: an
// event or a change keeps one id or idempotency key over all attempts, so a
// lost answer never becomes a second row. It never logs, never follows a
// redirect with its own HTTP client, and never turns a decimal into a float.
//
// # Stable ids
//
// SendEvent and SendEvents give an event without an id a random one before the
// first attempt, and write it into the caller's event. A retry, by this package
// or by the caller with the same value, is therefore absorbed by the server and
// answered "duplicate". The server's word is passed on as it is: "duplicate"
// with Attempts above 1 and an id of this package's making usually means that
// an earlier attempt was committed and its answer was lost; the event counts
// once either way. WithoutGeneratedIDs leaves the id absent, and the
// server then derives a key from the event's fields.
//
// # Errors
//
// An answer outside 2xx is a [*Problem], found with errors.As. What never
// reached an answer wraps the transport's error. Both are returned only after
// the retries that [RetryPolicy] allows.
package client
