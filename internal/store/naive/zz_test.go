package naive_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

type counting struct {
	store.Store
	m map[string]int
}

func (c counting) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	vs, err := c.Store.Record(ctx, b)
	c.m["batches"]++
	for i, v := range vs {
		s := v.Status.String()
		if v.Problem != nil {
			s += string(v.Problem.Code)
		}
		if b.Events[i].Corrects != "" {
			s = "corr-" + s
		}
		c.m[s]++
	}
	return vs, err
}

func TestZZ(t *testing.T) {
	m := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		clock := storetest.NewClock()
		storetest.Life(t, func() (oracle, subject store.Store) { return open(clock.Now), counting{open(clock.Now), m} }, nil, clock)
	})
	fmt.Println(m)
}
