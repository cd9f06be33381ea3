package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/edge/redis"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/limit"
)

// LimitSettings bound what callers may send in a second. A second's worth may come at once; a batch that is larger
// passes when nothing was taken of it, and is waited for after.
type LimitSettings struct {
	// Tenant is for all keys of a tenant together. Default: no limit.
	Tenant RateSettings `yaml:"tenant"`
	// APIKey is for each key that has no rate_limit of its own. Default: no limit.
	APIKey RateSettings `yaml:"api_key"`
	// Redis shares the limits between nodes: redis://user:password@host:port/database, rediss:// with TLS, or
	// unix://path. While it does not answer, each node limits by itself. Default "".
	Redis string `yaml:"redis"`
}

// RateSettings are of one second. 0: no limit.
type RateSettings struct {
	RequestsPerSecond int64 `yaml:"requests_per_second"`
	EventsPerSecond   int64 `yaml:"events_per_second"`
	// BytesPerSecond is of bodies, decompressed.
	BytesPerSecond int64 `yaml:"bytes_per_second"`
}

func (r RateSettings) rate() limit.Rate {
	return limit.Rate{Requests: r.RequestsPerSecond, Events: r.EventsPerSecond, Bytes: r.BytesPerSecond}
}

func (r RateSettings) check(name string) error {
	const most = 1 << 50
	return errors.Join(within(name+".requests_per_second", r.RequestsPerSecond, 0, most),
		within(name+".events_per_second", r.EventsPerSecond, 0, most),
		within(name+".bytes_per_second", r.BytesPerSecond, 0, most))
}

func (l *LimitSettings) check() error {
	err := errors.Join(l.Tenant.check("rate_limits.tenant"), l.APIKey.check("rate_limits.api_key"))
	if l.Redis == "" {
		return err
	}
	shared, wrong := redis.Open(l.Redis)
	if wrong != nil {
		return errors.Join(err, fmt.Errorf("rate_limits.redis: %w", wrong))
	}
	return errors.Join(err, shared.Close())
}

// limiter keeps all limits of the server.
func (s *Server) limiter(m *metrics) (*limit.Limiter, error) {
	o := limit.Options{Refused: m.limited}
	if url := s.settings.RateLimits.Redis; url != "" {
		var err error
		if s.limits, err = redis.Open(url); err != nil {
			return nil, fmt.Errorf("rate_limits.redis: %w", err)
		}
		o.Shared, o.Alone = s.limits, func(err error) {
			m.alone.Inc()
			if !errors.Is(err, redis.ErrAway) {
				s.log.Warn("rate limits are not shared: this node limits by itself", "error", err)
			}
		}
	}
	return limit.New(o), nil
}

func (s *Server) gate(limiter *limit.Limiter, m *metrics) *gate.Gate {
	r := &s.settings.RateLimits
	return gate.New(s.store, gate.Options{RootKey: s.settings.RootKey, Observe: m.judged, Waited: m.waited,
		Limiter: limiter, TenantRate: r.Tenant.rate(), KeyRate: r.APIKey.rate()})
}

// admit bounds how many answers a tenant can have kept.
func (r RequestSettings) admit(l *limit.Limiter) func(string) (time.Duration, bool) {
	return func(tenantID string) (time.Duration, bool) {
		b := limit.Bucket{By: limit.IdempotencyKey, Name: tenantID, Rate: limit.Rate{Requests: r.KeysPerSecond}}
		o := l.Take(context.Background(), limit.Cost{Requests: 1}, b)
		return o.Wait, o.OK()
	}
}
