package naive_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

func open(now func() time.Time) store.Store { return naive.New(naive.Options{Now: now}) }

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Maker{Open: func(_ *testing.T, now func() time.Time) store.Store { return open(now) }})
}

// Two of the same must agree on every life: the generator and the comparison are sound.
func TestLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := storetest.NewClock()
		storetest.Life(t, func() (oracle, subject store.Store) { return open(clock.Now), open(clock.Now) }, nil, clock)
	})
}
