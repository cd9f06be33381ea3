package postgres

import (
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
)

// changeArrays are change rows as the parameters of an insert.
type changeArrays struct {
	seq, typ, source, actor, entityType, entityID, payload array
	kind, id, version, critical, data                      array
}

func (a *changeArrays) reset() {
	a.seq.reset(oidInt8)
	for _, x := range [...]*array{&a.typ, &a.source, &a.actor, &a.entityType, &a.entityID, &a.payload,
		&a.kind, &a.id, &a.data} {
		x.reset(oidText)
	}
	a.version.reset(oidInt2)
	a.critical.reset(oidBool)
}

func (a *changeArrays) add(r *ledger.Row) {
	c := r.Change
	a.seq.int8(int64(r.Seq))
	a.typ.text(c.Type)
	a.source.text(c.Source)
	a.actor.text(c.Actor)
	a.entityType.text(c.EntityType)
	a.entityID.text(c.EntityID)
	a.payload.text(c.Payload)
	s := &c.State
	if s.IsZero() {
		for _, x := range [...]*array{&a.kind, &a.id, &a.version, &a.critical, &a.data} {
			x.null()
		}
		return
	}
	a.kind.text(s.Kind)
	a.id.text(s.ID)
	a.version.int2(int16(s.Version))
	a.critical.bool(s.Critical)
	a.data.bytes(s.Data)
}

func (a *changeArrays) params(tenantID string, at calendar.Micros) [][]byte {
	return [][]byte{[]byte(tenantID), timeParam(at), a.seq.param(), a.typ.param(), a.source.param(), a.actor.param(),
		a.entityType.param(), a.entityID.param(), a.payload.param(), a.kind.param(), a.id.param(), a.version.param(),
		a.critical.param(), a.data.param()}
}

// readChange reads the columns of changeColumns.
func readChange(in *reader) (ledger.Row, error) {
	r := ledger.Row{Seq: uint64(in.int8()), At: in.time()}
	c := &ledger.Change{Event: audit.Event{Type: in.text(), Source: in.text(), Actor: in.text(),
		EntityType: in.text(), EntityID: in.text(), Payload: in.text()}}
	if !in.isNull() {
		c.State = entity.State{Kind: in.text(), ID: in.text(), Version: uint8(in.int2()), Critical: in.bool(),
			Data: in.bytes()}
	}
	r.Change = c
	return r, in.err
}
