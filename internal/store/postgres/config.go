package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// config is what a tenant's changes leave behind, at one version. It is immutable: a change makes another one.
type config struct {
	version uint64
	tenant  *tenant.Tenant
	keys    map[string]*tenant.APIKey
	meters  map[string]*meter.Meter
	used    map[uint32]bool // by meter number
	periods map[calendar.Month]usage.Period
	horizon store.Horizon
	catalog *usage.Catalog

	plans      map[string]*quota.Rules
	thresholds int    // of one quota, at most
	ownPlan    string // of the tenant itself; "" is none
}

var noConfig = (&config{}).arranged()

func (c *config) arranged() *config {
	var salt [32]byte
	if c.tenant != nil {
		salt = c.tenant.Salt
	}
	c.catalog = usage.NewCatalog(salt, slices.Collect(maps.Values(c.meters)))
	return c
}

func (c *config) closed(m calendar.Month) bool { return c.periods[m].Closed }

func (c *config) numberOf(slug string) (uint32, bool) {
	m := c.catalog.Slug(slug)
	if m == nil {
		return 0, false
	}
	return m.Number, true
}

// with returns the configuration after a change. The version stays: it moves with the commit.
func (c *config) with(s ledger.State) *config {
	out := *c
	switch {
	case s.Tenant != nil:
		out.tenant = s.Tenant
		return out.arranged()
	case s.Key != nil:
		out.keys = set(c.keys, s.Key.ID, s.Key)
	case s.Meter != nil:
		out.meters = set(c.meters, s.Meter.Slug, s.Meter)
		return out.arranged()
	case s.Close != nil:
		out.periods = set(c.periods, s.Close.Month, *s.Close)
	case s.Plan != nil:
		out.putPlan(s.Plan)
	case s.Assignment != nil && s.Assignment.Customer == "":
		out.ownPlan = s.Assignment.Plan
	case s.Floor != nil, s.Archive != nil:
		out.horizon = c.horizon.With(s)
	default:
		return c
	}
	return &out
}

// using returns the configuration with meters marked as used.
func (c *config) using(numbers []uint32) *config {
	out := *c
	out.used = maps.Clone(c.used)
	if out.used == nil {
		out.used = map[uint32]bool{}
	}
	for _, n := range numbers {
		out.used[n] = true
	}
	return &out
}

// newVersion names the configuration that the row of that number leaves behind. Versions rise with the rows; chance in
// their lower bits makes two that have nothing to do with one another differ, also when a database failed over without
// its last commits and has given their numbers to other rows.
func newVersion(seq uint64) uint64 {
	var chance [8]byte
	rand.Read(chance[:]) // never fails
	return seq<<versionChance | binary.BigEndian.Uint64(chance[:])>>(64-versionChance)
}

// versionChance is how many bits of a version are chance; it leaves room for eight million million rows of a tenant.
const versionChance = 20

func (c *config) at(version uint64) *config {
	out := *c
	out.version = version
	return &out
}

// set returns a copy of m with one more entry.
func set[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	out := make(map[K]V, len(m)+1)
	maps.Copy(out, m)
	out[k] = v
	return out
}

// The kinds of entities. The tenant itself has a table of its own.
const (
	kindTenant  = "tenant"
	kindKey     = "api_key"
	kindMeter   = "meter"
	kindPeriod  = "period"
	kindPlan    = "plan"
	kindFloor   = "floor"
	kindArchive = "archive"
)

// loadConfig reads a tenant's configuration within a transaction that has read the head's version.
func (c *session) loadConfig(ctx context.Context, tenantID string, version uint64) (*config, error) {
	out := &config{version: version, keys: map[string]*tenant.APIKey{}, meters: map[string]*meter.Meter{}, used: map[uint32]bool{}, periods: map[calendar.Month]usage.Period{}}
	r := c.round(ctx)
	r.send(readTenant, func(in *reader) error {
		s, err := readState(in, kindTenant)
		out.tenant = s.Tenant
		return err
	}, []byte(tenantID))
	r.send(readEntities, out.readEntity, []byte(tenantID))
	r.send(assignmentsOf, func(in *reader) error {
		_, out.ownPlan = in.text(), in.text()
		return nil
	}, []byte(tenantID), textsParam([]string{""}))
	if err := r.do(); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return out.arranged(), nil
}

func (c *config) readEntity(in *reader) error {
	kind := in.text()
	s, err := readState(in, kind)
	used := in.bool()
	if err != nil {
		return err
	}
	if in.err != nil {
		return in.err
	}
	switch {
	case kind == kindKey && s.Key != nil:
		c.keys[s.Key.ID] = s.Key
	case kind == kindMeter && s.Meter != nil:
		c.meters[s.Meter.Slug] = s.Meter
		if used {
			c.used[s.Meter.Number] = true
		}
	case kind == kindPeriod && s.Close != nil:
		c.periods[s.Close.Month] = *s.Close
	case kind == kindPlan && s.Plan != nil:
		c.putPlan(s.Plan)
	case kind == kindFloor && s.Floor != nil, kind == kindArchive && s.Archive != nil:
		c.horizon = c.horizon.With(s)
	default:
		return fmt.Errorf("an entity of kind %q has another state: %w", kind, errDefect)
	}
	return nil
}

// readState reads seq, at and state of an entity.
func readState(in *reader, kind string) (ledger.State, error) {
	r := ledger.Row{Seq: uint64(in.int8()), At: in.time(), Change: &ledger.Change{}}
	r.Change.Type = kind // what a complaint about it names
	r.Change.State = in.bytes()
	if in.err != nil {
		return ledger.State{}, in.err
	}
	return ledger.DecodeState(&r)
}
