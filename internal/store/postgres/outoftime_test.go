package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// Given a transaction whose time, which the store gave it, ran out, then its caller is asked to come again and is not
// answered as if its own context had ended; every other failure stays what it is.
func TestTheStoresOwnTimeIsNotTheCallers(t *testing.T) {
	over, end := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer end()
	other := errors.New("other")
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		coded bool
	}{
		"in time":               {context.Background(), nil, false},
		"out of time":           {over, context.DeadlineExceeded, true},
		"out of time, deep":     {over, fmt.Errorf("read: %w", context.DeadlineExceeded), true},
		"another failure":       {over, other, false},
		"somebody else's clock": {context.Background(), context.DeadlineExceeded, false},
		"done all the same":     {over, nil, false},
	} {
		got := outOfTime(c.ctx, c.err)
		if problem.Is(got, problem.Unavailable) != c.coded || !errors.Is(got, c.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
