package client

import (
	"context"
	"time"
)

// Clock is the time that retries and the Batcher live by. Tests supply their
// own, so that nothing waits for real.
type Clock interface {
	Now() time.Time
	// Sleep returns nil once d has passed, or the context's error as soon as
	// the context ends.
	Sleep(ctx context.Context, d time.Duration) error
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
