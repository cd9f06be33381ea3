package sinks

import (
	"context"
	"encoding/base32"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/ledgers"
	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/store"
)

// Service makes, changes and shows sinks. It is safe for concurrent use.
type Service struct {
	store   store.Store
	ledgers ledgers.Ledgers
	o       Options
}

// Options of a Service. All are required.
type Options struct {
	// Vault keeps secrets of webhooks.
	Vault Vault
	// Check judges whether a sink's receiver may be reached. Errors: Invalid.
	Check func(ctx context.Context, s *sink.Sink) error
	// Overlap is how long a secret stays valid when another replaces it.
	Overlap time.Duration
	// Random makes ids and secrets.
	Random io.Reader
}

// Vault keeps secrets encrypted. *secrets.Keyring is one.
type Vault interface {
	Seal(plain []byte, of secrets.Owner) ([]byte, error)
	Open(sealed []byte, of secrets.Owner) ([]byte, error)
}

// New works on a store.
func New(s store.Store, o Options) *Service { return &Service{store: s, ledgers: ledgers.New(s), o: o} }

// Start is where a new sink begins.
type Start struct {
	Now bool   // behind what is in the ledger
	Seq uint64 // with this row, unless Now
}

// Create makes a sink. A runner has it follow the ledger once that is committed. Of made, all that a caller chooses
// counts. secret signs a webhook's deliveries, a new one if it is empty; it is returned this once. Errors: NotFound,
// Invalid, TenantClosed, Conflict (too many sinks), Archived (rows to begin with have left).
func (s *Service) Create(
	ctx context.Context, actor, tenantID string, made sink.Sink, secret string, start Start,
) (sink.Sink, string, error) {
	if p := ledgers.Reachable(tenantID); p != nil {
		return sink.Sink{}, "", p
	}
	if p := made.Check(); p != nil {
		return sink.Sink{}, "", p
	}
	if err := s.o.Check(ctx, &made); err != nil {
		return sink.Sink{}, "", err
	}
	id, err := s.newID()
	if err != nil {
		return sink.Sink{}, "", err
	}
	made.ID = id
	if made.Way == sink.Webhook {
		signing, err := s.signingOf(secret)
		if err != nil {
			return sink.Sink{}, "", err
		}
		secret = signing.Reveal()
		sealed, err := s.o.Vault.Seal([]byte(secret), ownerOf(tenantID, made.ID))
		if err != nil {
			return sink.Sink{}, "", fmt.Errorf("keep the secret: %w", err)
		}
		made.Secrets = []sink.Secret{{Sealed: sealed}}
	} else if secret != "" {
		return sink.Sink{}, "", problem.At("secret", "only webhooks are signed")
	}
	position, err := s.startAt(ctx, tenantID, &made, start)
	if err != nil {
		return sink.Sink{}, "", err
	}
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		if err := room(tx); err != nil {
			return err
		}
		made.Start, made.CreatedAt, made.UpdatedAt = position+1, tx.Now(), tx.Now()
		return appendSink(tx, actor, "created", &made)
	})
	if err != nil {
		return sink.Sink{}, "", err
	}
	return made, secret, nil
}

func (s *Service) signingOf(secret string) (secrets.Signing, error) {
	if secret == "" {
		return secrets.NewSigning(s.o.Random)
	}
	return secrets.ParseSigning("secret", secret)
}

func (s *Service) newID() (string, error) {
	var b [10]byte
	if _, err := io.ReadFull(s.o.Random, b[:]); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return "snk_" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:])), nil
}

func ownerOf(tenantID, sinkID string) secrets.Owner {
	return secrets.Owner{Tenant: tenantID, Entity: sink.Kind.Name + ":" + sinkID}
}

// startAt is the position of a sink that begins with a row. Rows that it would begin with must be there.
func (s *Service) startAt(ctx context.Context, tenantID string, of *sink.Sink, start Start) (position uint64,
	err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) error {
		head := v.Head().Seq
		if position = head; start.Now {
			return nil
		}
		if start.Seq < 1 || start.Seq > head+1 {
			return problem.At("start", "the ledger has rows 1 to %d: begin with one of them, with now or with "+
				"beginning",
				head)
		}
		position = start.Seq - 1
		return here(v, position, &of.Filter)
	})
	return position, err
}

// here refuses rows behind a position that are archived. Errors: Archived.
func here(v store.View, position uint64, f *sink.Filter) error {
	for _, a := range v.Horizon().Needed(position, hintOf(f)) {
		return problem.New(problem.Archived, "rows of %s are archived: begin behind row %d", a.Month, a.End)
	}
	return nil
}

// room refuses another sink when there are too many.
func room(tx store.Tx) error {
	n := 0
	err := store.Each(tx, &sink.Kind, func(s *sink.Sink) error {
		if !s.Deleted {
			n++
		}
		return nil
	})
	if err == nil && n >= sink.MaxSinks {
		err = problem.New(problem.Conflict, "the tenant has %d sinks, the most there can be", sink.MaxSinks)
	}
	return err
}

// appendSink records a sink. The payload shows no secret.
func appendSink(tx store.Tx, actor, action string, s *sink.Sink) error {
	_, err := ledgers.Append(tx, actor, audit.Of(entityType, action, s.ID), sinkPayload{
		Name: s.Name, Kind: s.Way.String(), URL: s.URL, Servers: s.Servers, Topic: s.Topic, Rows: s.Rows.Names(),
		Types: s.Types, Batch: s.Batch, Paused: s.Paused,
	}, sink.Kind.State(s))
	return err
}

type sinkPayload struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	URL     string   `json:"url,omitempty"`
	Servers []string `json:"servers,omitempty"`
	Topic   string   `json:"topic,omitempty"`
	Rows    []string `json:"rows"`
	Types   []string `json:"types,omitempty"`
	Batch   int      `json:"batch"`
	Paused  bool     `json:"paused"`
}

// get reads a sink that was not deleted. Errors: NotFound.
func get(v store.View, id string) (sink.Sink, error) {
	s, err := store.Get(v, &sink.Kind, id)
	if err == nil && s.Deleted {
		err = problem.New(problem.NotFound, "no sink %q", id)
	}
	return s, err
}

// Change changes a sink as change says; nothing is recorded when it stays as it is. Errors: NotFound, Invalid,
// TenantClosed, and those of change.
func (s *Service) Change(
	ctx context.Context, actor, tenantID, id string, change func(*sink.Sink) error,
) (sink.Sink, error) {
	var now sink.Sink
	err := s.ledgers.View(ctx, tenantID, func(v store.View) error {
		t, err := store.Tenant(v)
		if err == nil {
			err = ledgers.TakesChanges(&t)
		}
		if err == nil {
			now, err = get(v, id)
		}
		return err
	})
	if err != nil {
		return sink.Sink{}, err
	}
	if err := change(&now); err != nil {
		return sink.Sink{}, err
	}
	if p := now.Check(); p != nil {
		return sink.Sink{}, p
	}
	if err := s.o.Check(ctx, &now); err != nil { // beyond any transaction: it looks names up
		return sink.Sink{}, err
	}
	return s.update(ctx, actor, tenantID, id, "updated", change)
}

// update changes a sink in a transaction, and records that if anything is different.
func (s *Service) update(
	ctx context.Context, actor, tenantID, id, action string, change func(*sink.Sink) error,
) (out sink.Sink, err error) {
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		out, err = changed(tx, actor, id, action, change)
		return err
	})
	return out, err
}

func changed(tx store.Tx, actor, id, action string, change func(*sink.Sink) error) (sink.Sink, error) {
	before, err := get(tx, id)
	if err != nil {
		return before, err
	}
	out := before
	if err := change(&out); err != nil {
		return before, err
	}
	if string(sink.Kind.Encode(&before)) == string(sink.Kind.Encode(&out)) {
		return before, nil
	}
	out.UpdatedAt = tx.Now()
	switch {
	case out.Paused && !before.Paused:
		action = "paused"
	case !out.Paused && before.Paused:
		action = "resumed"
	}
	return out, appendSink(tx, actor, action, &out)
}

// Delete ends a sink, that of a closed tenant too. What it had begun to deliver may still arrive. Errors: NotFound.
func (s *Service) Delete(ctx context.Context, actor, tenantID, id string) error {
	if p := ledgers.Reachable(tenantID); p != nil {
		return p
	}
	return s.store.Update(ctx, tenantID, func(tx store.Tx) error {
		_, err := changed(tx, actor, id, "deleted", func(out *sink.Sink) error {
			out.Deleted, out.Secrets = true, nil
			return nil
		})
		return err
	})
}

// Rotate gives a webhook another secret, and returns it this once. The one before signs too, for a while. Errors:
// NotFound, Invalid (it is no webhook), TenantClosed.
func (s *Service) Rotate(ctx context.Context, actor, tenantID, id, secret string) (sink.Sink, string, error) {
	signing, err := s.signingOf(secret)
	if err != nil {
		return sink.Sink{}, "", err
	}
	sealed, err := s.o.Vault.Seal([]byte(signing.Reveal()), ownerOf(tenantID, id))
	if err != nil {
		return sink.Sink{}, "", fmt.Errorf("keep the secret: %w", err)
	}
	until := calendar.FromTime(time.Now().Add(s.o.Overlap))
	out, err := s.update(ctx, actor, tenantID, id, "secret_rotated", func(out *sink.Sink) error {
		if out.Way != sink.Webhook {
			return problem.New(problem.Invalid, "sink %s is no webhook: only those are signed", id)
		}
		all := []sink.Secret{{Sealed: sealed}}
		for _, before := range out.Secrets {
			if before.Expires == 0 || before.Expires > until {
				before.Expires = until
			}
			if len(all) < maxSecrets {
				all = append(all, before)
			}
		}
		out.Secrets = all
		return nil
	})
	return out, signing.Reveal(), err
}

// maxSecrets is how many secrets sign at once.
const maxSecrets = 4

// SecretsOf opens the secrets that a sink signs with. It is for whoever makes its carrier.
func SecretsOf(v Vault, tenantID string, s *sink.Sink) ([]secrets.Validity, error) {
	var out []secrets.Validity
	for i := range s.Secrets {
		plain, err := v.Open(s.Secrets[i].Sealed, ownerOf(tenantID, s.ID))
		if err != nil {
			return nil, fmt.Errorf("open a secret of sink %s: %w", s.ID, err)
		}
		signing, err := secrets.ParseSigning("secret", string(plain))
		if err != nil {
			return nil, fmt.Errorf("open a secret of sink %s: %w", s.ID, err)
		}
		one := secrets.Validity{Secret: signing}
		if s.Secrets[i].Expires != 0 {
			one.Until = s.Secrets[i].Expires.Time()
		}
		out = append(out, one)
	}
	return out, nil
}

// Status is where a sink stands.
type Status struct {
	State    string // running, retrying, failing or paused
	Position uint64
	LagRows  uint64
	// LagTime is since the first row that it has not delivered was committed; nil when that was not looked up.
	LagTime   *time.Duration
	LastError string
}

// Standing is a sink and where it stands.
type Standing struct {
	sink.Sink
	Status
}

// Get returns a sink. Errors: NotFound.
func (s *Service) Get(ctx context.Context, tenantID, id string) (out Standing, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) error {
		if out.Sink, err = get(v, id); err != nil {
			return err
		}
		if out.Status, err = s.status(ctx, v, tenantID, &out.Sink); err != nil {
			return err
		}
		return out.lookUpLag(v)
	})
	return out, err
}

// Changed returns a sink without its LagTime, which takes reading rows: a write must not do that, since under a request
// key it is inside of its transaction. Errors: NotFound.
func (s *Service) Changed(ctx context.Context, tenantID, id string) (out Standing, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) error {
		if out.Sink, err = get(v, id); err != nil {
			return err
		}
		out.Status, err = s.status(ctx, v, tenantID, &out.Sink)
		return err
	})
	return out, err
}

// List lists sinks by id, after the given one. Errors: NotFound.
func (s *Service) List(ctx context.Context, tenantID, after string, limit int) (out []Standing, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) error {
		for len(out) < limit {
			page, err := store.List(v, &sink.Kind, store.Page{After: after, Limit: limit})
			if err != nil || len(page) == 0 {
				return err
			}
			for i := range page {
				after = page[i].ID
				if page[i].Deleted || len(out) == limit {
					continue
				}
				status, err := s.status(ctx, v, tenantID, &page[i])
				if err == nil {
					err = status.lookUpLag(v)
				}
				if err != nil {
					return err
				}
				out = append(out, Standing{page[i], status})
			}
		}
		return nil
	})
	return out, err
}

func (s *Service) status(ctx context.Context, v store.View, tenantID string, of *sink.Sink) (Status, error) {
	f, err := s.store.Following(ctx, tenantID, sink.Follower(of.ID))
	if problem.Is(err, problem.NotFound) {
		f.Position, err = of.Start-1, nil
	}
	if err != nil {
		return Status{}, err
	}
	n, err := decodeNote(f.Note)
	if err != nil {
		return Status{}, err
	}
	head := v.Head().Seq
	out := Status{State: "running", Position: f.Position, LagRows: head - min(head, f.Position)}
	if n.Under != nil {
		out.LastError = n.Under.Error
	}
	switch {
	case of.Paused:
		out.State = "paused"
	case n.Failed:
		out.State = "failing"
	case n.Under != nil && n.Under.Attempts > 0:
		out.State = "retrying"
	}
	return out, nil
}

// lookUpLag finds when the first row was committed that the sink has not delivered.
func (s *Status) lookUpLag(v store.View) error {
	lag := time.Duration(0)
	s.LagTime = &lag
	if s.LagRows == 0 {
		return nil
	}
	all := store.RowHint{Events: true, Entries: true, Changes: true}
	_, _, err := v.Rows(s.Position, all, func(r *ledger.Row) bool {
		lag = v.Now().Time().Sub(r.At.Time())
		return false
	})
	if problem.Is(err, problem.Archived) {
		err = nil
	}
	return err
}

// Failures lists items of a sink by id, after the given one. The delivery that failed and is tried again is among them.
// Errors: NotFound.
func (s *Service) Failures(
	ctx context.Context, tenantID, id, after string, limit int,
) (out []sink.Item, err error) {
	err = s.ledgers.View(ctx, tenantID, func(v store.View) (err error) {
		if _, err := get(v, id); err != nil {
			return err
		}
		out, err = store.ListBy(v, &sink.ItemKind, entity.Term{Index: sink.BySink, Value: id},
			store.Page{After: after, Limit: limit})
		return err
	})
	if err != nil {
		return nil, err
	}
	under, err := s.under(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	if under != nil && under.ID > after {
		out = append(out, *under)
		slices.SortFunc(out, func(a, b sink.Item) int { return strings.Compare(a.ID, b.ID) })
	}
	return out[:min(len(out), limit)], nil
}

// under is the delivery of a sink that failed and is tried again, if there is one.
func (s *Service) under(ctx context.Context, tenantID, id string) (*sink.Item, error) {
	f, err := s.store.Following(ctx, tenantID, sink.Follower(id))
	if err != nil {
		if problem.Is(err, problem.NotFound) {
			err = nil
		}
		return nil, err
	}
	n, err := decodeNote(f.Note)
	if err != nil || n.Under == nil || n.Under.Attempts == 0 || n.Under.Item != "" {
		return nil, err
	}
	b := n.Under
	state := sink.Pending
	if f.Due <= calendar.FromTime(time.Now()) {
		state = sink.Processing
	}
	return &sink.Item{ID: itemID(id, b), Sink: id, From: b.From, To: b.To, Filter: b.Filter, State: state,
		Attempts: b.Attempts, Error: b.Error, CreatedAt: b.Since, UpdatedAt: b.Since}, nil
}

// ReplayFailure has a delivery that was given up tried again. Errors: NotFound, Conflict (it is not FAILED).
func (s *Service) ReplayFailure(ctx context.Context, actor, tenantID, id, itemID string) (item sink.Item, err error) {
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		if _, err := get(tx, id); err != nil {
			return err
		}
		if item, err = store.Get(tx, &sink.ItemKind, itemID); err != nil || item.Sink != id {
			return problem.New(problem.NotFound, "sink %s has no failure %q", id, itemID)
		}
		if item.State != sink.Failed {
			return problem.New(problem.Conflict, "it is %s: what is FAILED can be replayed", item.State)
		}
		item.State, item.UpdatedAt = sink.Pending, tx.Now()
		return appendItem(tx, actor, "replay_requested", &item)
	})
	return item, err
}

// Replay has rows delivered again, marked so. to is the last of them, 0 for the ledger's last. Errors: NotFound,
// Invalid, Archived.
func (s *Service) Replay(ctx context.Context, actor, tenantID, id string, from, to uint64) (item sink.Item, err error) {
	name, err := s.newID()
	if err != nil {
		return item, err
	}
	err = s.ledgers.Update(ctx, tenantID, func(tx store.Tx, _ tenant.Tenant) error {
		of, err := get(tx, id)
		if err != nil {
			return err
		}
		head := tx.Head().Seq
		if to == 0 {
			to = head
		}
		if from < 1 || from > to || to > head {
			return problem.At("from_seq", "rows from_seq to to_seq must be among 1 to %d", head)
		}
		if err := here(tx, from-1, &of.Filter); err != nil {
			return err
		}
		item = sink.Item{ID: name, Sink: id, From: from, To: to, Filter: of.Filter, Asked: true,
			State: sink.Pending, CreatedAt: tx.Now(), UpdatedAt: tx.Now()}
		return appendItem(tx, actor, "replay_requested", &item)
	})
	return item, err
}
