package httpapi

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

const sinksPath = "/v1/sinks"

// sinkPatch is the given fields of a sink; the rest is left as it is.
type sinkPatch struct {
	name, url, topic, subject *string
	brokers, servers, types   *[]string
	rows                      *sink.Rows
	batch                     *int
	paused                    *bool
}

func readSink(f *httpkit.Form) (p sinkPatch) {
	p.name, p.url, p.topic, p.subject = f.Given("name"), f.Given("url"), f.Given("topic"), f.Given("subject")
	p.brokers, p.servers, p.types = givenTexts(f, "brokers"), givenTexts(f, "servers"), givenTexts(f, "types")
	if names := givenTexts(f, "rows"); names != nil {
		rows, bad := sink.ParseRows(*names)
		f.Check(bad)
		p.rows = &rows
	}
	if f.Has("batch") {
		var n int64
		f.Count("batch", &n)
		batch := int(min(n, math.MaxInt32))
		p.batch = &batch
	}
	return p
}

func givenTexts(f *httpkit.Form, name string) *[]string {
	var all []string
	if !f.Texts(name, &all) {
		return nil
	}
	return &all
}

// apply changes a sink. A field of another kind of sink is refused.
func (p *sinkPatch) apply(s *sink.Sink) error {
	for _, f := range [...]struct {
		name  string
		given bool
		way   sink.Way
	}{
		{"url", p.url != nil, sink.Webhook},
		{"brokers", p.brokers != nil, sink.Kafka}, {"topic", p.topic != nil, sink.Kafka},
		{"servers", p.servers != nil, sink.NATS}, {"subject", p.subject != nil, sink.NATS},
	} {
		if f.given && f.way != s.Way {
			return problem.At(f.name, "only a %s sink has it, and this is a %s sink", f.way, s.Way)
		}
	}
	set(&s.Name, p.name)
	set(&s.URL, p.url)
	set(&s.Topic, p.topic)
	set(&s.Topic, p.subject)
	set(&s.Servers, p.brokers)
	set(&s.Servers, p.servers)
	set(&s.Types, p.types)
	set(&s.Rows, p.rows)
	set(&s.Batch, p.batch)
	set(&s.Paused, p.paused)
	return nil
}

// postSink serves POST /v1/sinks.
func (s *Server) postSink(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	made := sink.Sink{Filter: sink.Filter{Rows: sink.AllRows}, Batch: sink.DefaultBatch}
	if !f.Has("name") {
		f.Fault("name", "required")
	}
	if way := httpkit.Named(f, "kind", sink.ParseWay); way != nil {
		made.Way = *way
	} else {
		f.Fault("kind", "required: one of webhook, kafka, nats")
	}
	var secret string
	f.Text("secret", &secret)
	start := readStart(f)
	patch := readSink(f)
	if err := f.Done(); err != nil {
		return err
	}
	if err := patch.apply(&made); err != nil {
		return err
	}
	made, secret, err = s.options.Sinks.Create(x.Context(), x.Caller.Actor(), x.Caller.Tenant, made, secret, start)
	if err != nil {
		return err
	}
	b := appendSink(nil, &sinks.Standing{Sink: made,
		Status: sinks.Status{State: "running", Position: made.Start - 1}})
	location := sinksPath + "/" + url.PathEscape(made.ID)
	if secret == "" {
		return x.Created(location, b)
	}
	return x.CreatedWithSecret(location, b, "secret", secret)
}

// readStart reads where a sink begins: "now", "beginning", or the number of a row.
func readStart(f *httpkit.Form) sinks.Start {
	v, given := f.Any("start")
	if !given || v == nil {
		return sinks.Start{Now: true}
	}
	switch v := v.(type) {
	case string:
		switch v {
		case "now":
			return sinks.Start{Now: true}
		case "beginning":
			return sinks.Start{Seq: 1}
		}
	case json.Number:
		if seq, err := strconv.ParseUint(v.String(), 10, 63); err == nil && seq > 0 {
			return sinks.Start{Seq: seq}
		}
	}
	f.Fault("start", `"now", "beginning", or the number of a row`)
	return sinks.Start{}
}

// listSinks serves GET /v1/sinks.
func (s *Server) listSinks(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	list, err := s.options.Sinks.List(x.Context(), x.Caller.Tenant, after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, list, func(s *sinks.Standing) string { return s.ID }, appendSink)
}

// getSink serves GET /v1/sinks/{id}.
func (s *Server) getSink(x *httpkit.Exchange) error {
	if err := x.NoQuery(); err != nil {
		return err
	}
	got, err := s.options.Sinks.Get(x.Context(), x.Caller.Tenant, x.Path("id"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendSink(nil, &got), '\n'))
}

// patchSink serves PATCH /v1/sinks/{id}.
func (s *Server) patchSink(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	patch := readSink(f)
	var state string
	if f.Text("state", &state) {
		paused := state == "paused"
		if patch.paused = &paused; !paused && state != "running" {
			f.Fault("state", "paused or running")
		}
	}
	if err := f.Done(); err != nil {
		return err
	}
	_, err = s.options.Sinks.Change(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id"), patch.apply)
	if err != nil {
		return err
	}
	got, err := s.options.Sinks.Changed(x.Context(), x.Caller.Tenant, x.Path("id"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendSink(nil, &got), '\n'))
}

// deleteSink serves DELETE /v1/sinks/{id}.
func (s *Server) deleteSink(x *httpkit.Exchange) error {
	if err := x.NoForm(); err != nil {
		return err
	}
	if err := s.options.Sinks.Delete(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id")); err != nil {
		return err
	}
	x.Write(http.StatusNoContent, nil)
	return nil
}

// rotateSecret serves POST /v1/sinks/{id}/rotate-secret.
func (s *Server) rotateSecret(x *httpkit.Exchange) error {
	f, err := x.OptionalForm()
	if err != nil {
		return err
	}
	var secret string
	f.Text("secret", &secret)
	if err := f.Done(); err != nil {
		return err
	}
	_, secret, err = s.options.Sinks.Rotate(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id"), secret)
	if err != nil {
		return err
	}
	got, err := s.options.Sinks.Changed(x.Context(), x.Caller.Tenant, x.Path("id"))
	if err != nil {
		return err
	}
	return x.AnswerWithSecret(appendSink(nil, &got), "secret", secret)
}

// replaySink serves POST /v1/sinks/{id}/replay.
func (s *Server) replaySink(x *httpkit.Exchange) error {
	f, err := x.Form()
	if err != nil {
		return err
	}
	var from, to int64
	if !f.Has("from_seq") {
		f.Fault("from_seq", "required")
	}
	f.Count("from_seq", &from)
	f.Count("to_seq", &to)
	if err := f.Done(); err != nil {
		return err
	}
	item, err := s.options.Sinks.Replay(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id"), uint64(from),
		uint64(to))
	if err != nil {
		return err
	}
	return x.Created(failuresOf(item.Sink), appendItem(nil, &item))
}

func failuresOf(id string) string { return sinksPath + "/" + url.PathEscape(id) + "/failures" }

// listFailures serves GET /v1/sinks/{id}/failures.
func (s *Server) listFailures(x *httpkit.Exchange) error {
	q, limit, after, err := x.Page()
	if err != nil {
		return err
	}
	items, err := s.options.Sinks.Failures(x.Context(), x.Caller.Tenant, x.Path("id"), after, limit+1)
	if err != nil {
		return err
	}
	return httpkit.ListByName(x, q, limit, items, func(i *sink.Item) string { return i.ID }, appendItem)
}

// replayFailure serves POST /v1/sinks/{id}/failures/{failure}/replay.
func (s *Server) replayFailure(x *httpkit.Exchange) error {
	if err := x.NoForm(); err != nil {
		return err
	}
	item, err := s.options.Sinks.ReplayFailure(x.Context(), x.Caller.Actor(), x.Caller.Tenant, x.Path("id"),
		x.Path("failure"))
	if err != nil {
		return err
	}
	return x.Answer(http.StatusOK, append(appendItem(nil, &item), '\n'))
}

// appendSink writes a sink. Its secrets are not in it.
func appendSink(b []byte, s *sinks.Standing) []byte {
	b = render.String(append(b, '{'), "id", s.ID)
	b = render.String(b, "name", s.Name)
	b = render.String(b, "kind", s.Way.String())
	switch s.Way {
	case sink.Webhook:
		b = render.String(b, "url", s.URL)
	case sink.Kafka:
		b = render.Strings(b, "brokers", s.Servers)
		b = render.String(b, "topic", s.Topic)
	case sink.NATS:
		b = render.Strings(b, "servers", s.Servers)
		b = render.String(b, "subject", s.Topic)
	}
	b = render.Strings(b, "rows", s.Rows.Names())
	b = render.Strings(b, "types", s.Types)
	b = render.Int(b, "batch", int64(s.Batch))
	b = render.Uint(b, "start", s.Start)
	b = render.String(b, "state", s.State)
	b = render.Uint(b, "position", s.Position)
	b = render.Uint(b, "lag_rows", s.LagRows)
	if s.LagTime == nil {
		b = render.Null(b, "lag_seconds")
	} else {
		b = render.Int(b, "lag_seconds", int64(s.LagTime.Seconds()))
	}
	b = render.Optional(b, "last_error", s.LastError)
	b = render.Moment(b, "created_at", s.CreatedAt)
	b = render.Moment(b, "updated_at", s.UpdatedAt)
	return append(b, '}')
}

func appendItem(b []byte, i *sink.Item) []byte {
	b = render.String(append(b, '{'), "id", i.ID)
	b = render.String(b, "sink", i.Sink)
	b = render.String(b, "state", string(i.State))
	b = render.Uint(b, "from_seq", i.From)
	b = render.Uint(b, "to_seq", i.To)
	b = render.Bool(b, "requested", i.Asked)
	b = render.Int(b, "attempts", int64(i.Attempts))
	b = render.Optional(b, "last_error", i.Error)
	b = render.Moment(b, "created_at", i.CreatedAt)
	b = render.Moment(b, "updated_at", i.UpdatedAt)
	return append(b, '}')
}
