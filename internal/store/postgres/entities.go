package postgres

import (
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
)

// Entities are kept by kind and id, whatever the kind, and found by their terms. Which terms an entity has, and when it
// may be forgotten, its kind's declaration says (entity.Kinds.Entry); no statement here knows a kind.

const entityColumns = "kind, id, version, critical, seq, at, data"

var (
	putEntities = &statement{name: "put_entities", sql: `INSERT INTO entities
			(tenant_id, kind, id, version, critical, indexed, seq, at, expires_at, data)
		SELECT h.tenant_id, unnest($2::text[]), unnest($3::text[]), unnest($4::smallint[]),
			unnest($5::boolean[]), unnest($6::smallint[]), unnest($7::bigint[]), unnest($8::timestamptz[]),
			unnest($9::timestamptz[]), unnest($10::text[])
		FROM heads h WHERE h.tenant_id = $1
		ON CONFLICT (tenant_id, kind, id) DO UPDATE SET version = excluded.version, critical = excluded.critical,
			indexed = excluded.indexed, seq = excluded.seq, at = excluded.at, expires_at = excluded.expires_at,
			data = excluded.data`}
	// The first so many that have expired leave, with others that expired at the same moment: one commit wrote them.
	forgetEntities = &statement{name: "forget_entities", choosy: true, sql: `DELETE FROM entities
		WHERE tenant_id = $1 AND kind = $2 AND expires_at IS NOT NULL AND expires_at <= (SELECT max(expires_at) FROM (
			SELECT expires_at FROM entities
			WHERE tenant_id = $1 AND kind = $2 AND expires_at IS NOT NULL AND expires_at <= $3
			ORDER BY expires_at LIMIT $4) AS expired)`}
	addTerms = &statement{name: "add_terms", sql: `INSERT INTO entity_terms (tenant_id, kind, index_name, value, id)
		SELECT h.tenant_id, unnest($2::text[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[])
		FROM heads h WHERE h.tenant_id = $1 ON CONFLICT (tenant_id, kind, index_name, value, id) DO NOTHING`}
	dropTerms = &statement{name: "drop_terms", choosy: true, sql: `DELETE FROM entity_terms
		WHERE tenant_id = $1 AND kind = $2 AND id = ANY($3::text[]) AND id <> ''`}
)

// forgetRatio is how many expired entities leave for each one of their kind that comes: with more than one, a table
// that has grown shrinks again.
const forgetRatio = 2

type entityName struct{ kind, id string }

// keptEntity is an entity and how it is kept.
type keptEntity struct {
	entity.Entity
	entity.Entry
}

// readEntity reads the columns of entityColumns.
func readEntity(in *reader) entity.Entity {
	s := entity.State{Kind: in.text(), ID: in.text(), Version: uint8(in.int2()), Critical: in.bool()}
	e := entity.Entity{Seq: uint64(in.int8()), At: in.time()}
	s.Data = in.bytes()
	e.State = s
	return e
}

// sendEntities replaces entities and their terms. Each is there once: a statement writes a row once.
func sendEntities(r *roundTrip, tenantID string, kept map[entityName]keptEntity, now calendar.Micros) {
	if len(kept) == 0 {
		return
	}
	id := []byte(tenantID)
	changed, coming := map[string][]string{}, map[string]int64{}
	for name, k := range kept {
		if k.Expires != 0 {
			coming[name.kind]++ // it has no terms, and never had
		} else {
			changed[name.kind] = append(changed[name.kind], name.id)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(coming)) {
		r.send(forgetEntities, nil, id, []byte(kind), timeParam(now), int8Param(forgetRatio*coming[kind]))
	}
	for _, kind := range slices.Sorted(maps.Keys(changed)) {
		r.send(dropTerms, nil, id, []byte(kind), textsParam(changed[kind]))
	}
	var e entityArrays
	var t termArrays
	e.reset()
	t.reset()
	for _, k := range kept {
		e.add(&k)
		t.add(&k)
	}
	r.send(putEntities, nil, e.params(tenantID)...)
	if t.id.n > 0 {
		r.send(addTerms, nil, t.params(tenantID)...)
	}
}

// entityArrays are entities as the parameters of an upsert.
type entityArrays struct{ kind, id, version, critical, indexed, seq, at, expires, data array }

func (a *entityArrays) reset() {
	for _, x := range [...]*array{&a.kind, &a.id, &a.data} {
		x.reset(oidText)
	}
	a.version.reset(oidInt2)
	a.critical.reset(oidBool)
	a.indexed.reset(oidInt2)
	a.seq.reset(oidInt8)
	a.at.reset(oidTimestamptz)
	a.expires.reset(oidTimestamptz)
}

func (a *entityArrays) add(k *keptEntity) {
	a.kind.text(k.Kind)
	a.id.text(k.ID)
	a.version.int2(int16(k.Version))
	a.critical.bool(k.Critical)
	a.indexed.int2(int16(k.Indexed))
	a.seq.int8(int64(k.Seq))
	a.at.time(k.At)
	if k.Expires != 0 {
		a.expires.time(k.Expires)
	} else {
		a.expires.null()
	}
	a.data.bytes(k.Data)
}

func (a *entityArrays) params(tenantID string) [][]byte {
	return [][]byte{[]byte(tenantID), a.kind.param(), a.id.param(), a.version.param(), a.critical.param(),
		a.indexed.param(), a.seq.param(), a.at.param(), a.expires.param(), a.data.param()}
}

// termArrays are terms as the parameters of an insert.
type termArrays struct{ kind, index, value, id array }

func (a *termArrays) reset() {
	for _, x := range [...]*array{&a.kind, &a.index, &a.value, &a.id} {
		x.reset(oidText)
	}
}

func (a *termArrays) add(k *keptEntity) {
	for _, t := range k.Terms {
		a.kind.text(k.Kind)
		a.index.text(t.Index)
		a.value.text(t.Value)
		a.id.text(k.ID)
	}
}

func (a *termArrays) params(tenantID string) [][]byte {
	return [][]byte{[]byte(tenantID), a.kind.param(), a.index.param(), a.value.param(), a.id.param()}
}
