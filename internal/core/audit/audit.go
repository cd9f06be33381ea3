// Package audit holds what is recorded of every change: who changed what, from where. An audit event is part of the
// same commit as its change and is never deleted. It carries no secret.
package audit

// Event describes one change. Its type is "{entity}.{action}".
type Event struct {
	Type       string
	Source     string // api, webhook, system, or a source's name
	Actor      string // the API key's id, or "operator", or "system"
	EntityType string
	EntityID   string
	Payload    string // JSON object for a person to read
}

// The sources of changes.
const (
	SourceAPI    = "api"
	SourceSystem = "system"
)

// ActorSystem is who acts when nobody asked: schedules and rules.
const ActorSystem = "system"

// EntityRequest is what stored answers are recorded under. They are no change of anything a caller knows: the audit log
// does not show them.
const EntityRequest = "request"

// Of names a change of an entity.
func Of(entity, action, id string) Event {
	return Event{Type: entity + "." + action, EntityType: entity, EntityID: id}
}
