package app

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the example shows as defaults are the defaults.
func TestTheExampleIsTheDefaults(t *testing.T) {
	var got Settings
	if err := got.decode(exampleSettings); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaultSettings(), got); diff != "" {
		t.Errorf("example differs from the defaults (-default +example):\n%s", diff)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for name, bend := range map[string]func(*Settings){
		"store":             func(s *Settings) { s.Store = "mysql://here" },
		"data":              func(s *Settings) { s.Data = "" },
		"listen":            func(s *Settings) { s.Listen = "8080" },
		"metrics listen":    func(s *Settings) { s.MetricsListen = "x" },
		"log format":        func(s *Settings) { s.Log.Format = "xml" },
		"log level":         func(s *Settings) { s.Log.Level = "" },
		"drain delay":       func(s *Settings) { s.Drain.Delay = -1 },
		"drain timeout":     func(s *Settings) { s.Drain.Timeout = 0 },
		"drain receive":     func(s *Settings) { s.Drain.Receive = 0 },
		"connections":       func(s *Settings) { s.HTTP.MaxConnections = -1 },
		"of an address":     func(s *Settings) { s.HTTP.MaxConnectionsPerAddress = -1 },
		"half of tls":       func(s *Settings) { s.TLS.Cert = "tls.crt" },
		"key without cert":  func(s *Settings) { s.TLS.Key = "tls.key" },
		"read timeout":      func(s *Settings) { s.HTTP.ReadTimeout = 0 },
		"body budget":       func(s *Settings) { s.HTTP.BodyBudget = 1 },
		"segment bytes":     func(s *Settings) { s.Engine.SegmentBytes = 4096 },
		"checkpoint bytes":  func(s *Settings) { s.Engine.CheckpointBytes = 0 },
		"index entries":     func(s *Settings) { s.Engine.IndexEntries = 1 << 26 },
		"request keys":      func(s *Settings) { s.Requests.KeysPerSecond = 0 },
		"tenant's requests": func(s *Settings) { s.RateLimits.Tenant.RequestsPerSecond = -1 },
		"a key's events":    func(s *Settings) { s.RateLimits.APIKey.EventsPerSecond = -1 },
		"a key's bytes":     func(s *Settings) { s.RateLimits.APIKey.BytesPerSecond = 1 << 60 },
		"shared limits":     func(s *Settings) { s.RateLimits.Redis = "localhost:6379" },
		"root key in parts": func(s *Settings) { s.RootKey = "two words are too many" },
	} {
		s := defaultSettings()
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		bend(&s)
		if s.check() == nil {
			t.Errorf("%s: a wrong setting was accepted", name)
		}
	}
}

// The story's late event must lie in the same month as the others, whatever the day.
func TestStoryStaysInOneMonth(t *testing.T) {
	for _, now := range []string{"2026-11-15T13:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T02:59:59.999Z",
		"2026-03-01T03:00:00Z"} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		story := storyTime(at)
		if story.After(at) || period(story) != period(story.Add(-2*demoLateness)) {
			t.Errorf("at %s the story plays at %s", now, story)
		}
	}
}

func TestUsageErrorsKeepTheirCause(t *testing.T) {
	err := wrongUse("no file: %w", fs.ErrNotExist)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
}
