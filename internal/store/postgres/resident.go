package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// residentSet is a tenant's resident entities at one version, and what else moves the version: which meters have
// events, and which critical kinds the ledger has met. It is immutable: a change makes another one. All other entities
// are read when they are asked for, and a change of one moves nothing.
type residentSet struct {
	*resident.Set
	kinds    *entity.Kinds
	version  uint64
	used     map[uint32]bool // by meter number
	critical map[codec]bool
}

// codec is a version of a kind.
type codec struct {
	kind    string
	version uint8
}

// criticalKind is a critical codec, and the row that a ledger first met it in.
type criticalKind struct {
	codec
	seq uint64
}

func codecOf(s *entity.State) codec { return codec{s.Kind, s.Version} }

// emptySet is that of a tenant that does not exist yet.
func emptySet(kinds *entity.Kinds) *residentSet {
	return &residentSet{Set: resident.Empty(kinds), kinds: kinds}
}

func (s *residentSet) numberOf(slug string) (uint32, bool) {
	m := s.Catalog.Slug(slug)
	if m == nil {
		return 0, false
	}
	return m.Number, true
}

// with returns the set after a change; the same one when the change moves nothing. The version stays: it moves with the
// commit. Errors are those of resident.Set.With.
func (s *residentSet) with(e *entity.Entity) (*residentSet, error) {
	next, err := s.With(e)
	if err != nil {
		return nil, err
	}
	isNew := s.isNewlyCritical(e)
	if next == s.Set && !isNew {
		return s, nil
	}
	out := *s
	out.Set = next
	if isNew {
		out.critical = withKey(s.critical, codecOf(&e.State))
	}
	return &out, nil
}

func (s *residentSet) isNewlyCritical(e *entity.Entity) bool {
	return e.Critical && !s.critical[codecOf(&e.State)]
}

// using returns the set with a meter marked as used.
func (s *residentSet) using(number uint32) *residentSet {
	out := *s
	out.used = withKey(s.used, number)
	return &out
}

func withKey[K comparable](m map[K]bool, k K) map[K]bool {
	out := make(map[K]bool, len(m)+1)
	maps.Copy(out, m)
	out[k] = true
	return out
}

func (s *residentSet) at(version uint64) *residentSet {
	out := *s
	out.version = version
	return &out
}

// newVersion names the set that the row of that number leaves behind. Versions rise with the rows; chance in their
// lower bits makes two that have nothing to do with one another differ, also when a database failed over without its
// last commits and has given their numbers to other rows.
func newVersion(seq uint64) uint64 {
	var chance [8]byte
	rand.Read(chance[:]) // never fails
	return seq<<versionChance | binary.BigEndian.Uint64(chance[:])>>(64-versionChance)
}

// versionChance is how many bits of a version are chance; it leaves room for eight million million rows of a tenant.
const versionChance = 20

var (
	residentEntities = &statement{name: "resident_entities", sql: `SELECT e.* FROM unnest($2::text[]) AS k(kind)
		CROSS JOIN LATERAL (SELECT ` + entityColumns + ` FROM entities
			WHERE tenant_id = $1 AND kind = k.kind OFFSET 0) e`}
	criticalKinds = &statement{name: "critical_kinds", sql: `SELECT kind, version, seq FROM critical_kinds
		WHERE tenant_id = $1 ORDER BY kind, version`}
	usedMeters = &statement{name: "used_meters", sql: "SELECT number FROM used_meters WHERE tenant_id = $1"}

	addCriticalKinds = &statement{name: "add_critical_kinds", sql: `INSERT INTO critical_kinds
			(tenant_id, kind, version, seq)
		SELECT h.tenant_id, unnest($2::text[]), unnest($3::smallint[]), unnest($4::bigint[])
		FROM heads h WHERE h.tenant_id = $1 ON CONFLICT (tenant_id, kind, version) DO NOTHING`}
	addUsedMeters = &statement{name: "add_used_meters", sql: `INSERT INTO used_meters (tenant_id, number)
		SELECT h.tenant_id, unnest($2::bigint[])
		FROM heads h WHERE h.tenant_id = $1 ON CONFLICT (tenant_id, number) DO NOTHING`}
)

// loadSet reads a tenant's set within a transaction that has read the head's version. Errors: Unavailable (the ledger
// has something critical that this build does not know).
func (s *Store) loadSet(ctx context.Context, c *session, tenantID string, version uint64) (*residentSet, error) {
	kinds, id := s.options.Kinds, []byte(tenantID)
	out := &residentSet{kinds: kinds, version: version, used: map[uint32]bool{}, critical: map[codec]bool{}}
	var entities, critical []entity.Entity
	r := c.roundTrip(ctx)
	r.send(criticalKinds, func(in *reader) error {
		e := entity.Entity{State: entity.State{Kind: in.text(), Version: uint8(in.int2()), Critical: true}}
		e.Seq = uint64(in.int8())
		critical = append(critical, e)
		return nil
	}, id)
	r.send(residentEntities, func(in *reader) error {
		entities = append(entities, readEntity(in))
		return nil
	}, id, textsParam(residentNames(kinds)))
	r.send(usedMeters, func(in *reader) error {
		out.used[uint32(in.int8())] = true
		return nil
	}, id)
	if err := r.do(); err != nil {
		return nil, fmt.Errorf("read the resident entities: %w", err)
	}
	for i := range critical {
		if err := kinds.Check(&critical[i]); err != nil {
			return nil, err
		}
		out.critical[codecOf(&critical[i].State)] = true
	}
	var err error
	out.Set, err = resident.Load(kinds, entities)
	return out, err
}

func residentNames(kinds *entity.Kinds) (names []string) {
	for _, d := range kinds.All() {
		if d.Resident {
			names = append(names, d.Name)
		}
	}
	return names
}

// sendMoved adds what moved the version, beside entities.
func sendMoved(r *roundTrip, a *addition) {
	id := []byte(a.tenantID)
	if len(a.newlyCritical) > 0 {
		var kind, version, seq array
		kind.reset(oidText)
		version.reset(oidInt2)
		seq.reset(oidInt8)
		for _, k := range a.newlyCritical {
			kind.text(k.kind)
			version.int2(int16(k.version))
			seq.int8(int64(k.seq))
		}
		r.send(addCriticalKinds, nil, id, kind.param(), version.param(), seq.param())
	}
	if len(a.newlyUsed) > 0 {
		var number array
		number.reset(oidInt8)
		for _, n := range a.newlyUsed {
			number.int8(int64(n))
		}
		r.send(addUsedMeters, nil, id, number.param())
	}
}
