package tenant

import (
	"encoding/json"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// Self is the id of the one entity of a kind of which a ledger has one.
const Self = "self"

// Kind is the tenant itself: one entity, under the id Self.
var Kind = entity.Kind[Tenant]{
	Name: "tenant", Version: 1, Critical: true, Resident: true,
	ID:     func(*Tenant) string { return Self },
	Encode: encodeTenant,
	Decode: decodeTenant,
}

// KeyKind is API keys, by their id. Revoked keys stay.
var KeyKind = entity.Kind[APIKey]{
	Name: "api_key", Version: 1, Critical: true, Resident: true,
	ID:     func(k *APIKey) string { return k.ID },
	Encode: encodeKey,
	Decode: decodeKey,
}

// The shapes on disk. They are apart from the rules' own types so that a rename there cannot change history.
type (
	tenantShape struct {
		ID        string          `json:"id"`
		Name      string          `json:"name,omitempty"`
		Origins   []string        `json:"allowed_origins,omitempty"`
		Salt      []byte          `json:"salt"`
		TreeKeys  []treeKeyShape  `json:"tree_keys"`
		Epochs    []epochShape    `json:"epochs,omitempty"`
		Closed    bool            `json:"closed,omitempty"`
		CreatedAt calendar.Micros `json:"created_at"`
		ClosedAt  calendar.Micros `json:"closed_at,omitempty"`
		MovedTo   string          `json:"moved_to,omitempty"`
		MovedAt   calendar.Micros `json:"moved_at,omitempty"`
	}
	treeKeyShape struct {
		FromSeq uint64 `json:"from_seq"`
		Key     []byte `json:"key"`
	}
	epochShape struct {
		FromSeq uint64          `json:"from_seq"`
		At      calendar.Micros `json:"at"`
		Reason  string          `json:"reason"`
	}
	keyShape struct {
		Name      string          `json:"name,omitempty"`
		Scopes    Scope           `json:"scopes"`
		Hash      []byte          `json:"hash"`
		Requests  int64           `json:"requests_per_second,omitempty"`
		Events    int64           `json:"events_per_second,omitempty"`
		Bytes     int64           `json:"bytes_per_second,omitempty"`
		CreatedAt calendar.Micros `json:"created_at"`
		ExpiresAt calendar.Micros `json:"expires_at,omitempty"`
		RevokedAt calendar.Micros `json:"revoked_at,omitempty"`
	}
)

func encodeTenant(t *Tenant) []byte {
	out := tenantShape{
		ID: t.ID, Name: t.Name, Origins: t.AllowedOrigins, Salt: t.Salt[:],
		TreeKeys: make([]treeKeyShape, len(t.TreeKeys)),
		Closed:   t.Closed, CreatedAt: t.CreatedAt, ClosedAt: t.ClosedAt, MovedTo: t.MovedTo, MovedAt: t.MovedAt,
	}
	for i := range t.TreeKeys {
		out.TreeKeys[i] = treeKeyShape{t.TreeKeys[i].FromSeq, t.TreeKeys[i].Secret[:]}
	}
	for _, e := range t.Epochs {
		out.Epochs = append(out.Epochs, epochShape(e))
	}
	return entity.Shape(out)
}

func decodeTenant(e *entity.Entity) (Tenant, error) {
	var in tenantShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return Tenant{}, err
	}
	out := Tenant{
		ID: in.ID, Name: in.Name, AllowedOrigins: in.Origins, Closed: in.Closed, CreatedAt: in.CreatedAt,
		ClosedAt: in.ClosedAt, MovedTo: in.MovedTo, MovedAt: in.MovedAt,
	}
	if copy(out.Salt[:], in.Salt) != len(out.Salt) || len(in.Salt) != len(out.Salt) {
		return Tenant{}, fmt.Errorf("its salt has %d bytes", len(in.Salt))
	}
	for _, k := range in.TreeKeys {
		key := tree.Key{FromSeq: k.FromSeq}
		if copy(key.Secret[:], k.Key) != len(key.Secret) || len(k.Key) != len(key.Secret) {
			return Tenant{}, fmt.Errorf("a key of its tree has %d bytes", len(k.Key))
		}
		out.TreeKeys = append(out.TreeKeys, key)
	}
	for _, e := range in.Epochs {
		out.Epochs = append(out.Epochs, Epoch(e))
	}
	return out, nil
}

func encodeKey(k *APIKey) []byte {
	l := &k.RateLimit
	return entity.Shape(keyShape{
		k.Name, k.Scopes, k.Hash[:], l.RequestsPerSecond, l.EventsPerSecond, l.BytesPerSecond,
		k.CreatedAt, k.ExpiresAt, k.RevokedAt,
	})
}

func decodeKey(e *entity.Entity) (APIKey, error) {
	var in keyShape
	if err := json.Unmarshal(e.Data, &in); err != nil {
		return APIKey{}, err
	}
	out := APIKey{
		ID: e.ID, Name: in.Name, Scopes: in.Scopes,
		RateLimit: RateLimit{RequestsPerSecond: in.Requests, EventsPerSecond: in.Events, BytesPerSecond: in.Bytes},
		CreatedAt: in.CreatedAt, ExpiresAt: in.ExpiresAt, RevokedAt: in.RevokedAt,
	}
	if copy(out.Hash[:], in.Hash) != len(out.Hash) || len(in.Hash) != len(out.Hash) {
		return APIKey{}, fmt.Errorf("its hash has %d bytes", len(in.Hash))
	}
	return out, nil
}
