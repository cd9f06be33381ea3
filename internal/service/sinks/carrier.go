// Package sinks carries committed rows out of the ledgers to receivers: webhooks, Kafka, NATS. It follows the feed of
// each tenant in order, at least once, and never copies a row at ingest: the ledger is the buffer. It decides what is
// delivered and when it is tried again; how it reaches a receiver is a Carrier's business.
package sinks

import (
	"context"
	"errors"
)

// Carrier takes deliveries to one receiver. It is used by one goroutine for a tenant at a time, by several for several.
type Carrier interface {
	// Deliver returns nil when the receiver has all rows of the delivery. The same delivery may come again, after an
	// error and after a restart: its ID and rows are then the same. Errors: ErrGone; all others may pass.
	Deliver(ctx context.Context, d *Delivery) error
	// Close ends connections. No Deliver is under way then.
	Close() error
}

// ErrGone is what a receiver answers who wants no more: the sink is paused.
var ErrGone = errors.New("the receiver is gone for good")

// Delivery is some rows of one tenant for one sink.
type Delivery struct {
	ID       string // the same over all attempts
	Tenant   string
	Sink     string
	Epoch    uint64 // of the ledger; see tenant.Epoch
	From, To uint64 // the rows it speaks for; Rows are those of them that the sink asks for
	Replayed bool   // it was delivered before, or comes out of order
	Rows     []Row
}

// Row is a row as receivers see it.
type Row struct {
	Seq  uint64
	Type string // usage.recorded, entry.recorded, or entity.action
	Key  string // what the row's order matters to: an account, or a customer; empty for a change
	Body []byte // an object of JSON
}
