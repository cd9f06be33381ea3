package move_test

import (
	"context"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/move"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Those who follow the ledgers go on at the target where they were at the source when it was marked. A copy has none of
// its own: two deployments would deliver the same.
func TestFollowersMoveAlong(t *testing.T) {
	ctx, from := context.Background(), filled(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(from.Follow(ctx, store.Following{Tenant: "acme", Follower: "sink",
		Standing: store.Standing{Position: 1, Note: []byte("first")}}))
	must(from.Follow(ctx, store.Following{Tenant: "globex", Follower: "sink",
		Standing: store.Standing{Position: 2}}))
	to := naive.New(naive.Options{Now: storetest.NewClock().Now})
	_, err := move.Run(ctx, from, to, move.Options{})
	must(err)
	if _, err := to.Following(ctx, "acme", "sink"); !problem.Is(err, problem.NotFound) {
		t.Fatalf("a copy has a follower: %v", err)
	}
	// It goes on at the source after its place was brought to the target, until the source is marked.
	moves := advancing{Store: from, move: func() {
		c, err := from.Claim(ctx, "acme", "sink", "node", time.Minute)
		must(err)
		must(from.Advance(ctx, c, store.Standing{Position: 3, Note: []byte("second")}, time.Minute))
	}}
	_, err = move.Run(ctx, &moves, to, move.Options{Place: place})
	must(err)
	for _, want := range []store.Following{
		{Tenant: "acme", Follower: "sink", Standing: store.Standing{Position: 3, Note: []byte("second")}},
		{Tenant: "globex", Follower: "sink", Standing: store.Standing{Position: 2}},
	} {
		got, err := to.Following(ctx, want.Tenant, want.Follower)
		if err != nil || got.Position != want.Position || string(got.Note) != string(want.Note) {
			t.Errorf("%s: %+v: %v", want.Tenant, got, err)
		}
	}
	if c, err := to.Claim(ctx, "acme", "sink", "another", time.Minute); err != nil {
		t.Errorf("the move has not given %+v up: %v", c, err)
	}
}

// advancing is a source whose follower moves when the first ledger is marked.
type advancing struct {
	store.Store
	move func()
}

func (a *advancing) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if a.move != nil {
		a.move()
		a.move = nil
	}
	return a.Store.Update(ctx, id, fn)
}
