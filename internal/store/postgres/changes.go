package postgres

import (
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
)

// changeArrays are change rows as the parameters of an insert.
type changeArrays struct {
	seq, typ, source, actor, entityType, entityID, payload, state, reverts array
}

func (a *changeArrays) reset() {
	a.seq.reset(oidInt8)
	for _, x := range [...]*array{&a.typ, &a.source, &a.actor, &a.entityType, &a.entityID, &a.payload, &a.state, &a.reverts} {
		x.reset(oidText)
	}
}

func (a *changeArrays) add(r *ledger.Row, s ledger.State) {
	c := r.Change
	a.seq.int8(int64(r.Seq))
	a.typ.text(c.Type)
	a.source.text(c.Source)
	a.actor.text(c.Actor)
	a.entityType.text(c.EntityType)
	a.entityID.text(c.EntityID)
	a.payload.text(c.Payload)
	a.state.optional(string(c.State))
	if s.Adjustment != nil {
		a.reverts.optional(s.Adjustment.Reverts)
	} else {
		a.reverts.null()
	}
}

func (a *changeArrays) params(tenantID string, at calendar.Micros) [][]byte {
	return [][]byte{[]byte(tenantID), timeParam(at), a.seq.param(), a.typ.param(), a.source.param(), a.actor.param(), a.entityType.param(),
		a.entityID.param(), a.payload.param(), a.state.param(), a.reverts.param()}
}

// readChange reads the columns of changeColumns.
func readChange(in *reader) (ledger.Row, error) {
	r := ledger.Row{Seq: uint64(in.int8()), At: in.time()}
	c := &ledger.Change{Event: audit.Event{Type: in.text(), Source: in.text(), Actor: in.text(), EntityType: in.text(), EntityID: in.text(), Payload: in.text()}}
	if !in.isNull() {
		c.State = in.bytes()
	}
	r.Change = c
	return r, in.err
}
