package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/tallystick/tallystick/api"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// getHealth serves GET /healthz: the process answers, whatever its store does.
func getHealth(x *exchange) error {
	b := appendString([]byte{'{'}, "status", "ok")
	b = appendPresent(b, "version", x.s.options.Version)
	return x.answer(http.StatusOK, append(b, '}', '\n'))
}

// getReady serves GET /readyz: a commit could succeed now, and new requests are welcome.
func getReady(x *exchange) error {
	if x.s.draining.Load() {
		return problem.New(problem.Unavailable, "the server is shutting down")
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), readyTimeout)
	defer cancel()
	if err := x.s.options.Store.Ready(ctx); err != nil {
		return notReady(err)
	}
	if err := x.s.options.Registry.KeptHere(ctx); err != nil {
		return notReady(err)
	}
	return x.answer(http.StatusOK, []byte("{\"status\":\"ready\"}\n"))
}

// notReady says why. An error of the store is told as it is: the probe is for operators, and their balancer needs a
// 503.
func notReady(err error) error {
	var p *problem.Error
	if errors.As(err, &p) && kindOf(p.Code).status == http.StatusServiceUnavailable {
		return err
	}
	return problem.Wrap(problem.Unavailable, err, "the store cannot commit now: %v", err)
}

// getOpenAPI serves GET /openapi.yaml.
func getOpenAPI(x *exchange) error {
	x.w.Header()["Content-Type"] = []string{"application/yaml"}
	x.write(http.StatusOK, api.OpenAPI)
	return nil
}

// getMetrics serves GET /metrics with the handler that the application brought.
func getMetrics(x *exchange) error {
	if x.s.options.Metrics == nil {
		return problem.New(problem.NotFound, "this server keeps no metrics here")
	}
	seen := &statusWriter{ResponseWriter: x.w, status: &x.status}
	x.s.options.Metrics.ServeHTTP(seen, x.r)
	return nil
}

// statusWriter notes the status that a foreign handler answers.
type statusWriter struct {
	http.ResponseWriter
	status *int
}

func (w *statusWriter) WriteHeader(status int) {
	*w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if *w.status == 0 {
		*w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}
