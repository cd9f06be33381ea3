package sinks

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/sink"
)

// note is what a sink remembers of a ledger beside its position.
type note struct {
	// Under is the delivery that was begun. It is kept before its first attempt: whatever happens to the process, the
	// node or the sink, the same rows go out under the same id until the receiver has them.
	Under *begun `json:"under,omitempty"`
	// Failed is set while the last delivery that ended was given up.
	Failed bool `json:"failed,omitempty"`
	// Item is the item that is delivered, and Next its first row that is not yet.
	Item string `json:"item,omitempty"`
	Next uint64 `json:"next,omitempty"`
}

// begun is a delivery that was begun.
type begun struct {
	From     uint64          `json:"from"`
	To       uint64          `json:"to"`
	Epoch    uint64          `json:"epoch"`
	Filter   sink.Filter     `json:"filter"`
	Item     string          `json:"item,omitempty"` // it is a part of this item
	Asked    bool            `json:"asked,omitempty"`
	Attempts int             `json:"attempts,omitempty"` // that failed
	Error    string          `json:"error,omitempty"`    // of the last of them
	Since    calendar.Micros `json:"since,omitempty"`    // when the first of them was
}

// id names a delivery of a sink to its receiver. A part of a delivery that failed before has the id it had then; a
// replay that was asked for has one of its own, or a receiver that remembers ids would not look at it.
func (b *begun) id(sinkID string) string {
	if b.Asked {
		return fmt.Sprintf("%s:%d:%d-%d:%s", sinkID, b.Epoch, b.From, b.To, b.Item)
	}
	return fmt.Sprintf("%s:%d:%d-%d", sinkID, b.Epoch, b.From, b.To)
}

func (n *note) encode() ([]byte, error) {
	if *n == (note{}) {
		return nil, nil
	}
	return json.Marshal(n)
}

func decodeNote(b []byte) (n note, err error) {
	if len(b) == 0 {
		return n, nil
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return n, fmt.Errorf("read what a sink remembers: %w", err)
	}
	return n, nil
}
