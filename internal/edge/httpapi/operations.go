package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/tallystick/tallystick/api"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/edge/httpkit/render"
)

// getHealth serves GET /healthz: the process answers, whatever its store does.
func (s *Server) getHealth(x *httpkit.Exchange) error {
	b := render.String([]byte{'{'}, "status", "ok")
	b = render.Present(b, "version", s.options.Version)
	return x.Answer(http.StatusOK, append(b, '}', '\n'))
}

// getReady serves GET /readyz: a commit could succeed now, and new requests are welcome.
func (s *Server) getReady(x *httpkit.Exchange) error {
	if s.kit.Draining() {
		return problem.New(problem.Unavailable, "the server is shutting down")
	}
	ctx, cancel := context.WithTimeout(x.Context(), readyTimeout)
	defer cancel()
	if err := s.options.Store.Ready(ctx); err != nil {
		return notReady(err)
	}
	if err := s.options.Registry.KeptHere(ctx); err != nil {
		return notReady(err)
	}
	return x.Answer(http.StatusOK, []byte("{\"status\":\"ready\"}\n"))
}

// notReady says why. An error of the store is shown as it is: the probe is for operators, and their balancer needs a
// 503.
func notReady(err error) error {
	var p *problem.Error
	if errors.As(err, &p) && httpkit.StatusOf(p.Code) == http.StatusServiceUnavailable {
		return err
	}
	return problem.Wrap(problem.Unavailable, err, "the store cannot commit now: %v", err)
}

// getOpenAPI serves GET /openapi.yaml.
func (s *Server) getOpenAPI(x *httpkit.Exchange) error {
	x.Header()["Content-Type"] = []string{httpkit.MediaYAML}
	x.Write(http.StatusOK, api.OpenAPI)
	return nil
}

// getMetrics serves GET /metrics with the handler that the application brought.
func (s *Server) getMetrics(x *httpkit.Exchange) error {
	if s.options.Metrics == nil {
		return problem.New(problem.NotFound, "this server keeps no metrics here")
	}
	x.Delegate(s.options.Metrics)
	return nil
}
