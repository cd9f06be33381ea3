package ledger

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/request"
)

// requestJSON is an answered request on disk.
type requestJSON struct {
	Key         string          `json:"key"`
	Fingerprint []byte          `json:"fingerprint"`
	Status      int             `json:"status,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	Location    string          `json:"location,omitempty"`
	Body        []byte          `json:"body,omitempty"`
	Tenant      string          `json:"tenant,omitempty"`
	ExpiresAt   calendar.Micros `json:"expires_at"`
}

func encodeRequest(r *request.Stored) *requestJSON {
	return &requestJSON{r.Key, r.Fingerprint[:], r.Status, r.ContentType, r.Location, r.Body, r.Tenant, r.ExpiresAt}
}

func (r *requestJSON) state() (State, error) {
	out := request.Stored{Key: r.Key, Tenant: r.Tenant, ExpiresAt: r.ExpiresAt,
		Answer: request.Answer{Status: r.Status, ContentType: r.ContentType, Location: r.Location, Body: r.Body}}
	if copy(out.Fingerprint[:], r.Fingerprint) != len(out.Fingerprint) {
		return State{}, fmt.Errorf("decode request %q: its fingerprint has %d bytes", r.Key, len(r.Fingerprint))
	}
	return State{Request: &out}, nil
}

// Keep is the change that stores an answered request. It tells of no entity's change, so the audit log passes over it.
func Keep(r *request.Stored, actor string) Change {
	told := audit.Of(audit.EntityRequest, "answered", r.Key)
	told.Source, told.Actor = audit.SourceAPI, actor
	return Change{Event: told, State: State{Request: r}.Encode()}
}
