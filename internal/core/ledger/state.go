package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// State is the entity that a change leaves behind. Exactly one field is set.
type State struct {
	Tenant     *tenant.Tenant
	Key        *tenant.APIKey
	Meter      *meter.Meter
	Adjustment *usage.Adjustment
	Close      *usage.Period
	Plan       *quota.Plan
	Assignment *quota.Assignment
	Alert      *quota.Alert     // of its fields, meter, customer, month and threshold
	Floor      *calendar.Micros // facts before it are refused: of the deployment in the operator's ledger, else of the tenant
	Archive    *Archive
	Base       *Base
	Request    *request.Stored
}

// stateVersion is written into every state. A reader that meets another one must stop: guessing would change the bill.
const stateVersion = 1

// The shapes on disk. They are apart from the rules' own types so that a rename there cannot change history.
type (
	stateJSON struct {
		Version    int             `json:"v"`
		Tenant     *tenantJSON     `json:"tenant,omitempty"`
		Key        *keyJSON        `json:"api_key,omitempty"`
		Meter      *meterJSON      `json:"meter,omitempty"`
		Adjustment *adjustmentJSON `json:"adjustment,omitempty"`
		Close      *closeJSON      `json:"period_close,omitempty"`
		Plan       *planJSON       `json:"plan,omitempty"`
		Assignment *assignmentJSON `json:"plan_assignment,omitempty"`
		Alert      *alertJSON      `json:"quota_alert,omitempty"`
		Floor      *floorJSON      `json:"floor,omitempty"`
		Archive    *archiveJSON    `json:"archive,omitempty"`
		Base       *baseJSON       `json:"base,omitempty"`
		Request    *requestJSON    `json:"request,omitempty"`
	}
	tenantJSON struct {
		ID        string          `json:"id"`
		Name      string          `json:"name,omitempty"`
		Origins   []string        `json:"allowed_origins,omitempty"`
		Salt      []byte          `json:"salt"`
		Closed    bool            `json:"closed,omitempty"`
		CreatedAt calendar.Micros `json:"created_at"`
		ClosedAt  calendar.Micros `json:"closed_at,omitempty"`
		MovedTo   string          `json:"moved_to,omitempty"`
		MovedAt   calendar.Micros `json:"moved_at,omitempty"`
	}
	keyJSON struct {
		ID        string          `json:"id"`
		Name      string          `json:"name,omitempty"`
		Scopes    tenant.Scope    `json:"scopes"`
		Hash      []byte          `json:"hash"`
		Requests  int64           `json:"requests_per_second,omitempty"`
		Events    int64           `json:"events_per_second,omitempty"`
		Bytes     int64           `json:"bytes_per_second,omitempty"`
		CreatedAt calendar.Micros `json:"created_at"`
		ExpiresAt calendar.Micros `json:"expires_at,omitempty"`
		RevokedAt calendar.Micros `json:"revoked_at,omitempty"`
	}
	meterJSON struct {
		Number         uint32            `json:"number"`
		Slug           string            `json:"slug"`
		Name           string            `json:"name,omitempty"`
		Aggregation    meter.Aggregation `json:"aggregation"`
		EventType      string            `json:"event_type,omitempty"`
		ValueProperty  string            `json:"value_property,omitempty"`
		UniqueProperty string            `json:"unique_property,omitempty"`
		Lateness       time.Duration     `json:"lateness"`
		Late           meter.Late        `json:"late,omitempty"`
		KeyPolicy      meter.KeyPolicy   `json:"key_policy,omitempty"`
		KeyFields      []string          `json:"key_fields,omitempty"`
		KeyBucket      time.Duration     `json:"key_bucket,omitempty"`
		Future         time.Duration     `json:"future"`
		Rounding       meter.Rounding    `json:"rounding,omitempty"`
		CreatedAt      calendar.Micros   `json:"created_at"`
	}
	adjustmentJSON struct {
		Meter    uint32         `json:"meter"`
		Customer string         `json:"customer"`
		Month    calendar.Month `json:"month"`
		Amount   string         `json:"amount"`
		Reason   string         `json:"reason"`
		Actor    string         `json:"actor"`
		Reverts  string         `json:"reverts,omitempty"`
		Replay   string         `json:"replay,omitempty"`
	}
	closeJSON struct {
		Month calendar.Month `json:"month"`
		Actor string         `json:"actor"`
	}
)

// Encode writes the state for a Change.
func (s State) Encode() []byte {
	out := stateJSON{Version: stateVersion}
	switch {
	case s.Tenant != nil:
		t := s.Tenant
		out.Tenant = &tenantJSON{t.ID, t.Name, t.AllowedOrigins, t.Salt[:], t.Closed, t.CreatedAt, t.ClosedAt, t.MovedTo, t.MovedAt}
	case s.Key != nil:
		k := s.Key
		out.Key = &keyJSON{k.ID, k.Name, k.Scopes, k.Hash[:], k.RateLimit.RequestsPerSecond, k.RateLimit.EventsPerSecond,
			k.RateLimit.BytesPerSecond, k.CreatedAt, k.ExpiresAt, k.RevokedAt}
	case s.Meter != nil:
		m := meterJSON(*s.Meter)
		out.Meter = &m
	case s.Adjustment != nil:
		a := s.Adjustment
		out.Adjustment = &adjustmentJSON{a.Meter, a.Customer, a.Month, a.Amount.String(), a.Reason, a.Actor, a.Reverts, a.Replay}
	case s.Close != nil:
		out.Close = &closeJSON{s.Close.Month, s.Close.Actor}
	case s.Floor != nil:
		out.Floor = &floorJSON{*s.Floor}
	case s.Archive != nil:
		out.Archive = encodeArchive(s.Archive)
	case s.Base != nil:
		out.Base = encodeBase(s.Base)
	case s.Request != nil:
		out.Request = encodeRequest(s.Request)
	case s.Plan != nil:
		out.Plan = planOf(s.Plan)
	case s.Assignment != nil:
		out.Assignment = &assignmentJSON{s.Assignment.Customer, s.Assignment.Plan}
	case s.Alert != nil:
		out.Alert = &alertJSON{s.Alert.Meter, s.Alert.Customer, s.Alert.Month, s.Alert.Threshold}
	}
	return plain(out)
}

// plain writes a shape whose fields cannot fail to encode.
func plain(shape any) []byte {
	b, err := json.Marshal(shape)
	if err != nil {
		panic(fmt.Sprintf("ledger: a shape of plain fields does not encode: %v", err))
	}
	return b
}

// DecodeState reads the entity of a change. What a row's place in the ledger says (its seq and time) is filled in from the row.
func DecodeState(r *Row) (State, error) {
	if len(r.Change.State) == 0 {
		return State{}, nil
	}
	var in stateJSON
	if err := json.Unmarshal(r.Change.State, &in); err != nil {
		return State{}, fmt.Errorf("decode state of row %d (%s): %w", r.Seq, r.Change.Type, err)
	}
	if in.Version != stateVersion {
		what := fmt.Sprintf("version %d of a state, and this build reads version %d", in.Version, stateVersion)
		return State{}, newer(r, what)
	}
	switch {
	case in.Tenant != nil:
		return in.Tenant.state()
	case in.Key != nil:
		return in.Key.state()
	case in.Meter != nil:
		m := meter.Meter(*in.Meter)
		return State{Meter: &m}, nil
	case in.Adjustment != nil:
		return in.Adjustment.state(r)
	case in.Close != nil:
		return State{Close: &usage.Period{Month: in.Close.Month, Closed: true, ClosedAt: r.At, Seq: r.Seq, Actor: in.Close.Actor}}, nil
	case in.Plan != nil:
		return in.Plan.state()
	case in.Assignment != nil:
		return State{Assignment: &quota.Assignment{Customer: in.Assignment.Customer, Plan: in.Assignment.Plan}}, nil
	case in.Alert != nil:
		return in.Alert.state(), nil
	case in.Floor != nil:
		return State{Floor: &in.Floor.At}, nil
	case in.Archive != nil:
		return in.Archive.state(r)
	case in.Base != nil:
		return in.Base.state()
	case in.Request != nil:
		return in.Request.state()
	}
	return State{}, newer(r, "a state of a kind that this build does not know")
}

// newer refuses a state that another build wrote. It is coded here because nobody above can say it better: the
// database, the disk and every other ledger are well, and only a newer build helps.
func newer(r *Row, what string) error {
	row := fmt.Sprintf("row %d", r.Seq)
	if r.Change.Type != "" {
		row += " (" + r.Change.Type + ")"
	}
	return problem.New(problem.Unavailable,
		"a newer build of tallystick wrote %s of this ledger: it has %s; upgrade this node", row, what)
}

func (t *tenantJSON) state() (State, error) {
	out := tenant.Tenant{ID: t.ID, Name: t.Name, AllowedOrigins: t.Origins, Closed: t.Closed, CreatedAt: t.CreatedAt, ClosedAt: t.ClosedAt,
		MovedTo: t.MovedTo, MovedAt: t.MovedAt}
	if copy(out.Salt[:], t.Salt) != len(out.Salt) {
		return State{}, fmt.Errorf("decode tenant %s: its salt has %d bytes", t.ID, len(t.Salt))
	}
	return State{Tenant: &out}, nil
}

func (k *keyJSON) state() (State, error) {
	out := tenant.APIKey{ID: k.ID, Name: k.Name, Scopes: k.Scopes, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt,
		RateLimit: tenant.RateLimit{RequestsPerSecond: k.Requests, EventsPerSecond: k.Events, BytesPerSecond: k.Bytes}}
	if copy(out.Hash[:], k.Hash) != len(out.Hash) {
		return State{}, fmt.Errorf("decode API key %s: its hash has %d bytes", k.ID, len(k.Hash))
	}
	return State{Key: &out}, nil
}

func (a *adjustmentJSON) state(r *Row) (State, error) {
	v, err := amount.Parse(a.Amount)
	if err != nil {
		return State{}, fmt.Errorf("decode adjustment of row %d: %w", r.Seq, err)
	}
	return State{Adjustment: &usage.Adjustment{ID: usage.ManualID(r.Seq), Seq: r.Seq, At: r.At, Meter: a.Meter, Customer: a.Customer, Month: a.Month,
		Amount: v, Reason: a.Reason, Actor: a.Actor, Reverts: a.Reverts, Replay: a.Replay}}, nil
}
