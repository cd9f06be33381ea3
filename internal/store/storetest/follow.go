package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Following ledgers: places, notes, claims, and what pruning leaves for those who are behind.
var followCases = []Case{
	{"a follower stands where it was put and where it moved, also after a restart", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.follow(acme, "sink", 3, "first")
		w.follow(acme, "sink", 9, "later") // it is there already
		w.stands(acme, "sink", 3, "first")
		w.again()
		w.stands(acme, "sink", 3, "first")
		c := w.claim(acme, "sink", "node")
		if c.Position != 3 || string(c.Note) != "first" {
			w.Errorf("the claim shows %d %q", c.Position, c.Note)
		}
		w.advance(c, 7, "second")
		w.advance(c, 7, "")
		w.advance(c, 8, strings.Repeat("n", store.MaxNote))
		w.advance(c, 9, "third")
		w.stands(acme, "sink", 9, "third")
		w.again()
		w.stands(acme, "sink", 9, "third")
	}},
	{"only the newest claim moves a follower, and a claim ends by itself", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.follow(acme, "sink", 0, "")
		ctx := context.Background()
		first := w.claim(acme, "sink", "one")
		_, err := w.s.Claim(ctx, acme, "sink", "two", time.Minute)
		w.code("a claim that another has", err, problem.Busy)
		w.clock.Advance(30 * time.Second)
		w.advance(first, 1, "a") // which makes the claim last
		w.clock.Advance(45 * time.Second)
		_, err = w.s.Claim(ctx, acme, "sink", "two", time.Minute)
		w.code("a claim that was made to last", err, problem.Busy)
		w.clock.Advance(30 * time.Second)
		w.code("a move after the claim's end", w.s.Advance(ctx, first, store.Standing{Position: 2}, time.Minute),
			problem.Conflict)
		second := w.claim(acme, "sink", "two")
		if second.Fence <= first.Fence || second.Position != 1 {
			w.Errorf("the second claim is %+v, the first was %+v", second, first)
		}
		w.code("a move by who was paused", w.s.Advance(ctx, first, store.Standing{Position: 5}, time.Minute),
			problem.Conflict)
		again := w.claim(acme, "sink", "two")
		w.code("a move by an older claim of the same owner",
			w.s.Advance(ctx, second, store.Standing{Position: 5}, time.Minute), problem.Conflict)
		w.stands(acme, "sink", 1, "a")
		w.advance(again, 5, "b")
		if err := w.s.Release(ctx, first); err != nil { // it has nothing to give up
			w.Errorf("release: %v", err)
		}
		_, err = w.s.Claim(ctx, acme, "sink", "one", time.Minute)
		w.code("a claim that another has", err, problem.Busy)
		if err := w.s.Release(ctx, again); err != nil {
			w.Errorf("release: %v", err)
		}
		w.code("a move after the release", w.s.Advance(ctx, again, store.Standing{Position: 6}, time.Minute),
			problem.Conflict)
		w.advance(w.claim(acme, "sink", "one"), 6, "c")
	}},
	{"a follower does not move back, and what cannot be kept is refused", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		w.follow(acme, "sink", 5, "")
		ctx, c := context.Background(), w.claim(acme, "sink", "one")
		w.code("a step back", w.s.Advance(ctx, c, store.Standing{Position: 4}, time.Minute), problem.Malformed)
		w.code("a note that is too long", w.s.Advance(ctx, c,
			store.Standing{Position: 6, Note: make([]byte, store.MaxNote+1)}, time.Minute),
			problem.Malformed)
		for _, name := range []string{"", strings.Repeat("f", store.MaxFollower+1), "a\x00b", "\xff"} {
			w.code(fmt.Sprintf("a follower called %q", name),
				w.s.Follow(ctx, store.Following{Tenant: acme, Follower: name}), problem.Malformed)
		}
		w.code("a tenant that is not there", w.s.Follow(ctx, store.Following{Tenant: "nobody", Follower: "sink"}),
			problem.NotFound)
		_, err := w.s.Claim(ctx, acme, "other", "one", time.Minute)
		w.code("a claim on nothing", err, problem.NotFound)
		_, err = w.s.Following(ctx, acme, "other")
		w.code("no following", err, problem.NotFound)
		_, err = w.s.Followings(ctx, "\x00", "", 10)
		w.code("a bad place", err, problem.Malformed)
		_, err = w.s.Heads(ctx, "\xff", 10)
		w.code("a bad place", err, problem.Malformed)
		w.stands(acme, "sink", 5, "")
	}},
	{"who no longer follows has no place, and others keep theirs", func(w *world) {
		ctx := context.Background()
		for _, id := range []string{acme, "beta"} {
			w.create(id, NewMeter("calls", meter.Sum))
			w.follow(id, "sink", 1, id)
			w.follow(id, "tail", 2, id)
		}
		c := w.claim(acme, "sink", "one")
		for range 2 {
			if err := w.s.Unfollow(ctx, acme, "sink"); err != nil {
				w.Fatalf("unfollow: %v", err)
			}
		}
		w.code("a move of what is gone", w.s.Advance(ctx, c, store.Standing{Position: 9}, time.Minute),
			problem.NotFound)
		w.again()
		_, err := w.s.Following(ctx, acme, "sink")
		w.code("a following that has ended", err, problem.NotFound)
		w.stands(acme, "tail", 2, acme)
		w.stands("beta", "sink", 1, "beta")
		w.follow(acme, "sink", 4, "anew")
		w.code("a move by a claim of before", w.s.Advance(ctx, c, store.Standing{Position: 9}, time.Minute),
			problem.Conflict)
		w.again()
		w.stands(acme, "sink", 4, "anew")
	}},
	{"followings and heads of all tenants are listed in order", func(w *world) { w.listFollowings() }},
	{"a commit wakes those who wait", func(w *world) {
		w.create(acme, NewMeter("calls", meter.Sum))
		for _, commit := range []func(){
			func() { w.says(acme, "accepted", Fact("a", "calls", "c", Ago(0), "1")) },
			func() { w.putMeter(acme, NewMeter("more", meter.Sum)) },
			func() { w.create("beta") },
		} {
			woken, also := w.s.Woken(), w.s.Woken()
			commit()
			<-woken
			<-also
		}
		select {
		case <-w.s.Woken():
			w.Errorf("woken by what was before")
		default:
		}
	}},
	{"a month stays while a follower has not come to its end", func(w *world) { w.heldMonth() }},
}

const claimTime = time.Minute

// standing is one with every field set by its position.
func standing(position uint64, note string) store.Standing {
	return store.Standing{Position: position, Due: calendar.Micros(position) * 3, Failing: position%2 == 1,
		Note: []byte(note)}
}

func sameStanding(a, b store.Standing) bool {
	return a.Position == b.Position && a.Due == b.Due && a.Failing == b.Failing && string(a.Note) == string(b.Note)
}

func (w *world) follow(id, follower string, position uint64, note string) {
	w.Helper()
	f := store.Following{Tenant: id, Follower: follower, Standing: standing(position, note)}
	if err := w.s.Follow(context.Background(), f); err != nil {
		w.Fatalf("follow %s: %v", id, err)
	}
}

func (w *world) stands(id, follower string, position uint64, note string) {
	w.Helper()
	f, err := w.s.Following(context.Background(), id, follower)
	if err != nil || f.Tenant != id || f.Follower != follower ||
		!sameStanding(f.Standing, standing(position, note)) {
		w.Errorf("%s stands at %+v: %v; want %d %q", follower, f, err, position, note)
	}
}

func (w *world) claim(id, follower, owner string) store.Claim {
	w.Helper()
	c, err := w.s.Claim(context.Background(), id, follower, owner, claimTime)
	if err != nil {
		w.Fatalf("claim %s of %s: %v", follower, id, err)
	}
	return c
}

func (w *world) advance(c store.Claim, position uint64, note string) {
	w.Helper()
	if err := w.s.Advance(context.Background(), c, standing(position, note), claimTime); err != nil {
		w.Fatalf("move %s to %d: %v", c.Follower, position, err)
	}
}

func (w *world) listFollowings() {
	ctx := context.Background()
	var heads []store.Grown
	var all []store.Followed
	for i, id := range []string{"a", "b", "c-d", "é"} {
		w.create(id, NewMeter("calls", meter.Sum))
		w.record(id, Fact("one", "calls", "c", Ago(0), "1"))
		heads = append(heads, store.Grown{Tenant: id, Seq: w.head(id).Seq})
		for _, f := range []string{"s1", "s2"} {
			w.follow(id, f, uint64(i), "n")
			at := standing(uint64(i), "")
			at.Note = nil
			all = append(all, store.Followed{Following: store.Following{Tenant: id, Follower: f, Standing: at}})
		}
	}
	w.claim("b", "s2", "one")
	all[3].Claimed = true
	for _, limit := range []int{1, 3, 100} {
		var gotHeads []store.Grown
		var got []store.Followed
		for after := ""; ; after = gotHeads[len(gotHeads)-1].Tenant {
			page, err := w.s.Heads(ctx, after, limit)
			if err != nil || len(page) > limit {
				w.Fatalf("%d heads: %v", len(page), err)
			}
			if gotHeads = append(gotHeads, page...); len(page) == 0 {
				break
			}
		}
		for at := (store.Followed{}); ; at = got[len(got)-1] {
			page, err := w.s.Followings(ctx, at.Tenant, at.Follower, limit)
			if err != nil || len(page) > limit {
				w.Fatalf("%d followings: %v", len(page), err)
			}
			if got = append(got, page...); len(page) == 0 {
				break
			}
		}
		if !slices.Equal(gotHeads, heads) || !slices.EqualFunc(got, all, sameFollowed) {
			w.Errorf("by %d: heads %v\nwant %v\nfollowings %v\nwant %v", limit, gotHeads, heads, got, all)
		}
	}
}

func sameFollowed(a, b store.Followed) bool {
	return a.Tenant == b.Tenant && a.Follower == b.Follower && a.Claimed == b.Claimed &&
		sameStanding(a.Standing, b.Standing)
}

func (w *world) heldMonth() {
	if err := Create(w.s, bygone, NewMeter("calls", meter.Sum)); err != nil {
		w.Fatalf("create: %v", err)
	}
	w.numbers = map[string]uint32{"calls": 1}
	at := (Month - 2).Start().Add(200 * time.Hour)
	w.says(bygone, "accepted", Fact("a", "calls", "c", at, "1"), Fact("b", "calls", "c", at, "2"),
		Fact("live", "calls", "c", Ago(0), "3"))
	last, _ := w.event(bygone, usage.KeyOfID("b"))
	w.closePeriod(bygone, Month-2)
	w.moveFloor(bygone, Month.Start())
	w.archive(bygone, Month-2)
	w.follow(bygone, "slow", last.Seq-1, "")
	w.follow(bygone, "done", last.Seq, "")
	prune := func(want uint64) {
		w.Helper()
		if n, err := w.s.Prune(context.Background(), nil); n != want || err != nil {
			w.Errorf("%d rows left, want %d: %v", n, want, err)
		}
	}
	prune(0)
	w.event(bygone, usage.KeyOfID("b"))
	w.advance(w.claim(bygone, "slow", "one"), last.Seq, "")
	prune(2)
}
