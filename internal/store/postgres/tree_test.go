package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// The months that may leave.
var (
	older = storetest.Month - 2
	old   = storetest.Month - 1
)

// leaver is a store whose ledger has rows of two months that may leave: some stand in tiles with rows that stay, some
// fill tiles alone, some together with those of the other month.
type leaver struct {
	*testing.T
	*Store
	url    string
	months map[calendar.Month][]uint64 // rows of each that leave
	head   ledger.Head
}

func newLeaver(t *testing.T, pruneRows uint64) *leaver {
	t.Helper()
	clock := storetest.NewClock()
	l := &leaver{T: t, url: migrated(t), months: map[calendar.Month][]uint64{}}
	l.Store = mustOpen(t, Options{URL: l.url, Now: clock.Now, MaxConns: few, SkipMigrations: true,
		PruneRows: pruneRows})
	t.Cleanup(func() { mustClose(t, l.Store) })
	if err := storetest.Create(l.Store, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	importEntries(t, l.Store, "acme", 3)
	l.add(300, older, old)
	l.add(600, older)
	l.add(600, old, older)
	importEntries(t, l.Store, "acme", 1)
	l.add(300, storetest.Month, older)
	return l
}

// add records facts whose months take turns.
func (l *leaver) add(n int, months ...calendar.Month) {
	l.Helper()
	var facts []usage.Event
	for i := range n {
		at := months[i%len(months)].Start().Add(time.Hour)
		facts = append(facts, storetest.Fact(fmt.Sprint(len(l.months), "-", l.head.Seq, "-", i), "calls", "c", at, "1"))
	}
	for i, v := range recorded(l.T, l.Store, facts...) {
		if v.Status != usage.Accepted {
			l.Fatalf("fact %d: %v", i, v)
		}
		m := months[i%len(months)]
		l.months[m] = append(l.months[m], v.Seq)
	}
	l.look(func(v store.View) error { l.head = v.Head(); return nil })
}

func (l *leaver) look(fn func(store.View) error) {
	l.Helper()
	if err := l.View(context.Background(), "acme", fn); err != nil {
		l.Fatal(err)
	}
}

// archive has the ledger say that a month is archived.
func (l *leaver) archive(m calendar.Month) {
	l.Helper()
	rows := l.months[m]
	a := ledger.Archive{Month: m, Manifest: "there.json", Rows: uint64(len(rows)), First: rows[0],
		Last: rows[len(rows)-1]}
	update(l.T, l.Store, func(tx store.Tx) error {
		_, err := tx.Append(ledger.Change{State: ledger.ArchiveKind.State(&a), Event: audit.Event{
			Type: "period.archived", Source: "api", Actor: "tester", EntityType: "period", EntityID: m.String(),
			Payload: "{}",
		}})
		return err
	})
}

func (l *leaver) prune(want int) {
	l.Helper()
	if n, err := l.Prune(context.Background(), nil); err != nil || n != uint64(want) {
		l.Fatalf("%d rows left, want %d: %v", n, want, err)
	}
}

// kept lists the rows whose leaves are kept.
func (l *leaver) kept() (out []uint64) {
	l.Helper()
	conn, err := pgx.Connect(context.Background(), l.url)
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(context.Background(), "SELECT seq FROM tallystick.leaves ORDER BY seq")
	if err != nil {
		l.Fatal(err)
	}
	if out, err = pgx.CollectRows(rows, pgx.RowTo[uint64]); err != nil {
		l.Fatal(err)
	}
	return out
}

// needed lists the rows whose leaves must be kept when the rows of some months have left.
func (l *leaver) needed(months ...calendar.Month) (out []uint64) {
	l.Helper()
	left := map[uint64]bool{}
	for _, m := range months {
		for _, seq := range l.months[m] {
			left[seq] = true
		}
	}
	l.look(func(v store.View) error {
		for index := uint64(0); index*tree.TileRows < v.Head().Seq; index++ {
			out = append(out, tree.KeptLeaves(index, v.Head().Seq, func(seq uint64) bool { return !left[seq] })...)
		}
		return nil
	})
	return out
}

// faults are what a check of the ledger's tree finds wrong.
func (l *leaver) faults() (found []error) {
	l.Helper()
	err := l.View(context.Background(), "acme", func(v store.View) error {
		tn, err := store.Tenant(v)
		if err != nil {
			return err
		}
		keys, err := tree.NewKeys(tn.TreeKeys)
		if err != nil {
			return err
		}
		var hasher ledger.Hasher
		check := tree.NewCheck(v.Tree(), func(want tree.Tile, _ tree.Hash) {
			found = append(found, fmt.Errorf("tile %d of level %d is another", want.Index, want.Level))
		})
		err = v.PrunedSections(1, func(s *ledger.Section) error { return hasher.Check(check, keys, s) })
		if err != nil {
			return err
		}
		rows, err := check.Tree()
		if err != nil {
			return err
		}
		tiles, err := tree.Rebuild(v.Tree(), v.Head().Seq)
		if head := v.Head().Tree; head != rows || head != tiles {
			found = append(found, errors.New("the head's tree is another"))
		}
		return err
	})
	if err != nil {
		found = append(found, err)
	}
	return found
}

// Given rows of two months, when these leave in one run, in two, or in runs that break off in between, then the same
// leaves are kept: of each tile in which something stays, all that left it. Tree and tiles can be checked at any time.
func TestPruningInSeveralRunsKeepsTheSame(t *testing.T) {
	t.Parallel()
	inOne := func(l *leaver, olds, olders int) {
		l.archive(older)
		l.archive(old)
		l.prune(olds + olders)
	}
	inTwo := func(l *leaver, olds, olders int) {
		l.archive(older)
		l.prune(olders)
		if got, want := l.kept(), l.needed(older); !slices.Equal(got, want) {
			l.Errorf("the leaves of rows %v are kept, want %v", got, want)
		}
		if found := l.faults(); found != nil {
			l.Errorf("after one month has left: %v", found)
		}
		l.archive(old)
		l.prune(olds)
	}
	brokenOff := func(l *leaver, olds, olders int) {
		l.archive(older)
		l.archive(old)
		for _, m := range []calendar.Month{old, older} {
			n := l.pruneOnce(m)
			if found := l.faults(); n == 0 || found != nil {
				l.Errorf("after one transaction that took %d rows of %s away: %v", n, m, found)
			}
			olds -= n
		}
		l.prune(olds + olders)
	}
	for name, run := range map[string]func(l *leaver, olds, olders int){
		"in one run": inOne, "month by month": inTwo, "broken off": brokenOff,
	} {
		for _, rows := range []uint64{1, 0} {
			t.Run(fmt.Sprint(name, ", rows at a time ", rows), func(t *testing.T) {
				t.Parallel()
				l := newLeaver(t, rows)
				if found := l.faults(); found != nil {
					t.Fatalf("before anything left: %v", found)
				}
				run(l, len(l.months[old]), len(l.months[older]))
				if got, want := l.kept(), l.needed(older, old); !slices.Equal(got, want) {
					t.Errorf("the leaves of rows %v are kept, want %v", got, want)
				}
				if found := l.faults(); found != nil {
					t.Errorf("after both months have left: %v", found)
				}
				l.checkLeaves()
				l.prune(0)
			})
		}
	}
}

// Given tiles that rows of two months fill, when two nodes take these away at the same time, then the second waits for
// the first, and nothing is kept of what left whole.
func TestTwoNodesPruneATileTogether(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, 0)
	l.archive(older)
	l.archive(old)
	second := make(chan int)
	first := l.pruneOnceAnd(older, func() {
		go func() { second <- l.pruneOnce(old) }()
		blocked(t, l.url)
	})
	if n := <-second; first != len(l.months[older]) || n != len(l.months[old]) {
		t.Errorf("%d and %d rows left, want %d and %d", first, n, len(l.months[older]), len(l.months[old]))
	}
	if got, want := l.kept(), l.needed(older, old); !slices.Equal(got, want) {
		t.Errorf("the leaves of rows %v are kept, want %v", got, want)
	}
	if found := l.faults(); found != nil {
		t.Error(found)
	}
}

// pruneOnce runs the first transaction of pruning a month.
func (l *leaver) pruneOnce(m calendar.Month) (pruned int) { return l.pruneOnceAnd(m, func() {}) }

// pruneOnceAnd calls then before the transaction commits.
func (l *leaver) pruneOnceAnd(m calendar.Month, then func()) (pruned int) {
	l.Helper()
	var j pruneJob
	err := l.viewing(context.Background(), "acme", func(v *view) error {
		a, _ := v.Horizon().Archive(m)
		j = pruneJob{s: l.Store, tenantID: "acme", set: v.set, size: v.base, archive: a}
		return nil
	})
	if err != nil {
		l.Error(err)
	}
	err = l.pruning(context.Background(), "acme", func(c *session) error {
		n, _, err := j.pruneTiles(context.Background(), c, j.archive.Last)
		pruned = int(n)
		then()
		return err
	})
	if err != nil {
		l.Error(err)
	}
	return pruned
}

// checkLeaves wants the leaves of a tile in which rows stay, and an answer why those of one that left whole are gone.
func (l *leaver) checkLeaves() {
	l.Helper()
	kept := l.kept()
	l.look(func(v store.View) error {
		whole := 0
		for index := uint64(0); (index+1)*tree.TileRows <= v.Head().Seq; index++ {
			first, last := tree.Tile{Level: 1, Index: index}.Rows()
			leaves, err := v.Tree().Leaves(first, last)
			_, some := slices.BinarySearchFunc(kept, first, func(seq, first uint64) int {
				return int((seq-1)/tree.TileRows) - int((first-1)/tree.TileRows)
			})
			switch {
			case !some && problem.Is(err, problem.Archived):
				whole++
			case err != nil:
				l.Errorf("leaves %d to %d: %v", first, last, err)
			default:
				tile, err := v.Tree().Tiles(1, index, index)
				if err != nil || tile[0] != tree.Perfect(leaves) {
					l.Errorf("tile %d is not the root of its leaves: %v", index, err)
				}
			}
		}
		if whole < 2 {
			l.Errorf("%d tiles have left whole, want some", whole)
		}
		return nil
	})
}

// Given a ledger of which rows have left, when a bit of what is kept of its tree flips, or a part of it is missing,
// then a check finds it.
func TestADamagedTreeIsFound(t *testing.T) {
	t.Parallel()
	l := newLeaver(t, 0)
	l.archive(older)
	l.prune(len(l.months[older]))
	if found := l.faults(); found != nil {
		t.Fatal(found)
	}
	damaged := []string{"heads", "tiles", "leaves", "entries", "usage_events"}
	last := l.kept()[len(l.kept())-1] // in the tile that is not full
	for _, damage := range []string{
		"UPDATE %s.heads SET tree = set_byte(tree, 0, get_byte(tree, 0) # 1)", // its size
		"UPDATE %s.heads SET tree = set_byte(tree, length(tree) - 1, get_byte(tree, length(tree) - 1) # 1)",
		"UPDATE %s.heads SET tree = set_byte(tree, 2, get_byte(tree, 2) # 128)",
		"UPDATE %s.heads SET tree = tree || '\\x00'::bytea",
		"UPDATE %s.heads SET tree = substr(tree, 1, length(tree) - 1)",
		"UPDATE %s.tiles SET hash = set_byte(hash, 31, get_byte(hash, 31) # 1) WHERE index = 0",
		"UPDATE %s.tiles SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) WHERE index = 2", // it left whole
		"UPDATE %s.tiles SET hash = substr(hash, 1, 31) WHERE index = 1",
		"DELETE FROM %s.tiles WHERE index = 3",
		"UPDATE %s.leaves SET hash = set_byte(hash, 5, get_byte(hash, 5) # 4) " +
			"WHERE seq = (SELECT min(seq) FROM %[1]s.leaves)",
		fmt.Sprintf("UPDATE %%s.leaves SET hash = set_byte(hash, 5, get_byte(hash, 5) # 4) WHERE seq = %d", last),
		fmt.Sprintf("DELETE FROM %%s.leaves WHERE seq = %d", last),
		"UPDATE %s.entries SET balance = balance + 1 WHERE seq = (SELECT min(seq) FROM %[1]s.entries)",
		"UPDATE %s.entries SET by = NULL WHERE seq = (SELECT max(seq) FROM %[1]s.entries)",
		"UPDATE %s.usage_events SET by = 'somebody' WHERE seq = (SELECT max(seq) FROM %[1]s.usage_events)",
		"DELETE FROM %s.entries WHERE seq = (SELECT min(seq) FROM %[1]s.entries)",
	} {
		damage = fmt.Sprintf(damage, Schema)
		for _, name := range damaged {
			l.exec("CREATE TABLE " + name + "_before AS SELECT * FROM tallystick." + name)
		}
		l.exec(damage)
		if l.faults() == nil {
			t.Errorf("not found: %s", damage)
		}
		for _, name := range damaged {
			l.exec(fmt.Sprintf("DELETE FROM %[2]s.%[1]s; INSERT INTO %[2]s.%[1]s SELECT * FROM %[1]s_before; "+
				"DROP TABLE %[1]s_before", name, Schema))
		}
		if found := l.faults(); found != nil {
			t.Fatalf("put right again after %s: %v", damage, found)
		}
	}
}

func (l *leaver) exec(statement string) {
	l.Helper()
	if err := pgtest.Exec(l.url, statement); err != nil {
		l.Fatalf("%s: %v", statement, err)
	}
}
