package engine

import (
	"hash/maphash"

	"github.com/tallystick/tallystick/internal/core/quota"
)

// assigned is which customers have which plan: a search tree that is never changed, so that a reader keeps the one it began with. A
// change copies the way to one name, where a map would copy every customer that has a plan. Ranks are random and fall from the
// root on, which keeps the tree about as deep as the logarithm of its size.
type assigned struct {
	name, plan  string
	rank        uint64
	left, right *assigned
}

// rankSeed is drawn anew for each process: nobody can choose names that make a deep tree.
var rankSeed = maphash.MakeSeed()

// with returns the tree in which a customer has a plan, or none when plan is empty.
func (a *assigned) with(name, plan string) *assigned {
	if a == nil {
		return &assigned{name: name, plan: plan, rank: maphash.String(rankSeed, name)}
	}
	n := *a
	switch {
	case name == a.name:
		n.plan = plan
	case name < a.name:
		n.left = a.left.with(name, plan)
		if up := n.left; up.rank > n.rank { // the copy that was just made
			n.left, up.right = up.right, &n
			return up
		}
	default:
		n.right = a.right.with(name, plan)
		if up := n.right; up.rank > n.rank {
			n.right, up.left = up.left, &n
			return up
		}
	}
	return &n
}

// planOf returns a customer's plan, or "".
func (a *assigned) planOf(name string) string {
	for a != nil {
		switch {
		case name == a.name:
			return a.plan
		case name < a.name:
			a = a.left
		default:
			a = a.right
		}
	}
	return ""
}

// list appends the customers above a name that have a plan, in order, until there are limit of them.
func (a *assigned) list(above string, limit int, into []quota.Assignment) []quota.Assignment {
	if a == nil || len(into) >= limit {
		return into
	}
	if a.name > above {
		into = a.left.list(above, limit, into)
		if len(into) < limit && a.plan != "" {
			into = append(into, quota.Assignment{Customer: a.name, Plan: a.plan})
		}
	}
	return a.right.list(above, limit, into)
}
