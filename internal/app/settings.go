package app

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tallystick/tallystick/internal/edge/httpapi"
	"github.com/tallystick/tallystick/internal/service/idempotency"
)

// Settings is everything that can be set. They come from the defaults, then the file, then the flags.
type Settings struct {
	// Data is the directory of the embedded store. Default "./data".
	Data string `yaml:"data"`
	// Listen is the address of the API. Port 0 takes a free one. Default "127.0.0.1:8080".
	Listen string `yaml:"listen"`
	// Store is where the ledger is kept: "embedded", or the URL of a PostgreSQL database,
	// postgres://user@host/database. Default "embedded".
	Store string `yaml:"store"`
	// MetricsListen is an address of its own for /metrics, without a key. Default "": only the API serves it, to the
	// operator.
	MetricsListen string            `yaml:"metrics_listen"`
	TLS           TLSSettings       `yaml:"tls"`
	Log           LogSettings       `yaml:"log"`
	Drain         DrainSettings     `yaml:"drain"`
	HTTP          HTTPSettings      `yaml:"http"`
	Engine        EngineSetting     `yaml:"engine"`
	Postgres      DatabaseSetting   `yaml:"postgres"`
	Periods       PeriodSettings    `yaml:"periods"`
	Requests      RequestSettings   `yaml:"requests"`
	RateLimits    LimitSettings     `yaml:"rate_limits"`
	Retention     RetentionSettings `yaml:"retention"`
	Sinks         SinkSettings      `yaml:"sinks"`

	// RootKey is the operator's key, from TALLYSTICK_ROOT_KEY: a secret has no place in a file of settings. Default "":
	// the first start makes one.
	RootKey string `yaml:"-"`
}

// LogSettings say what is logged on standard error.
type LogSettings struct {
	// Format is "text" or "json". Default "text".
	Format string `yaml:"format"`
	// Level is "debug", "info", "warn" or "error". Requests are logged at debug. Default "info".
	Level string `yaml:"level"`
}

// DrainSettings say how a server ends.
type DrainSettings struct {
	// Delay is how long /readyz says no before the listener closes, for balancers to notice. Default 0s.
	Delay time.Duration `yaml:"delay"`
	// Timeout bounds the wait for requests under way; what is left then is cut off. Default 30s.
	Timeout time.Duration `yaml:"timeout"`
	// Receive bounds how long a request that has begun may still take to arrive. Default 1s.
	Receive time.Duration `yaml:"receive"`
}

// HTTPSettings bound what a caller can take up.
type HTTPSettings struct {
	// BodyBudget is the bytes of all request bodies held at once. Default 268435456 (256 MiB), at least 33554432.
	BodyBudget int64 `yaml:"body_budget"`
	// ReadHeaderTimeout is for a request's header. Default 10s.
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout"`
	// ReadTimeout is for header and body. Default 30s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
	// WriteTimeout is for the answer. Default 1m.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// IdleTimeout is how long a connection may wait for its next request. Default 2m.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxConnections bounds the connections that are open at once. Default 0: the limit of open files, less 2048 for
	// the store's own, or half of a limit below 4096. More than that is not taken, either.
	MaxConnections int `yaml:"max_connections"`
	// MaxConnectionsPerAddress bounds those of one address, or one IPv6 network of 64 bits. Default 0: no bound,
	// because behind a balancer all come from one.
	MaxConnectionsPerAddress int `yaml:"max_connections_per_address"`
	// MaxStreams bounds the streams of rows that are open at once (GET /v1/stream). Default 1000.
	MaxStreams int `yaml:"max_streams"`
	// MaxStreamsPerTenant bounds those of one tenant. Default 100.
	MaxStreamsPerTenant int `yaml:"max_streams_per_tenant"`
	// Express serves small, plain requests for events without net/http. Default true.
	Express bool `yaml:"express"`
}

// EngineSetting shapes the embedded store's files.
type EngineSetting struct {
	// SegmentBytes is the length of the journal's files made from now on. Default 67108864 (64 MiB), 1 MiB to 1 GiB.
	SegmentBytes uint32 `yaml:"segment_bytes"`
	// CheckpointBytes is how much journal a start may have to replay. Default 67108864 (64 MiB), at least 64 KiB.
	CheckpointBytes int64 `yaml:"checkpoint_bytes"`
	// IndexEntries is how many keys are gathered in memory before they are written, at some 45 bytes each. Default
	// 1048576, 1024 to 33554432.
	IndexEntries int `yaml:"index_entries"`
	// Slices keeps usage sorted in Parquet files besides, which answer questions about spans of time. Default true;
	// without them such questions read the journal.
	Slices bool `yaml:"slices"`
}

// DatabaseSetting says how a PostgreSQL store is used.
type DatabaseSetting struct {
	// MaxConns bounds this node's connections. Default 0: 8, or four for each core if that is more.
	MaxConns int `yaml:"max_conns"`
	// StatementTimeout bounds one statement. Default 30s.
	StatementTimeout time.Duration `yaml:"statement_timeout"`
	// LockTimeout bounds the wait for a tenant's head, which another node holds for one commit. Default 10s.
	LockTimeout time.Duration `yaml:"lock_timeout"`
	// ConnectTimeout bounds the making of a connection. Default 5s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// SkipMigrations leaves the schema to `tallystick migrate`. Default false: a start brings it up to date.
	SkipMigrations bool `yaml:"skip_migrations"`
	// Rollups has this node add usage up by the hour, in turns with the others. Default true; without any node that
	// does, questions about usage fold the rows.
	Rollups bool `yaml:"rollups"`
}

// PeriodSettings say when months are closed without anybody asking.
type PeriodSettings struct {
	// AutoClose closes every month that no meter of its tenant takes events for on time any more. Default false.
	AutoClose bool `yaml:"auto_close"`
	// Grace is how much longer it waits. Default 0s.
	Grace time.Duration `yaml:"grace"`
	// CheckEvery is how often it looks. Default 1m.
	CheckEvery time.Duration `yaml:"check_every"`
}

// RequestSettings are of requests with an Idempotency-Key.
type RequestSettings struct {
	// Keep is how long an answer is given again. Default 24h.
	Keep time.Duration `yaml:"keep"`
	// KeysPerSecond is how many new keys a tenant may use in a second, with a burst of one second's worth: what it has
	// kept is at most that times Keep. Default 1000: a guard for the disk, not a limit for callers who behave.
	KeysPerSecond int64 `yaml:"keys_per_second"`
}

// RetentionSettings say how long usage rows stay in the ledger. What leaves it is archived first.
type RetentionSettings struct {
	// Horizon is how far back facts are taken and rows kept. Default 0s: for ever. At least 2280h (95 days).
	Horizon time.Duration `yaml:"horizon"`
	// Archive is where months go that leave: a folder, or s3://bucket/prefix with credentials from the usual sources.
	// Reads that need what has left are answered from there, also when the horizon is 0s. Default "".
	Archive string `yaml:"archive"`
	// Endpoint is the server of the bucket, https://host. Default "": Amazon's.
	Endpoint string `yaml:"endpoint"`
	// Region is the bucket's. Default "us-east-1".
	Region string `yaml:"region"`
	// Every is how often the server looks for what can leave. Default 24h.
	Every time.Duration `yaml:"every"`
}

// rootKeyVariable holds the operator's key.
const rootKeyVariable = "TALLYSTICK_ROOT_KEY"

// safeRootKey is how long a key should be that nobody can guess; a shorter one is warned about.
const safeRootKey = 16

// minBodyBudget is one body of the largest size and its compressed form.
const minBodyBudget = 32 << 20

//go:embed example.yaml
var exampleSettings []byte

func defaultSettings() Settings {
	return Settings{
		Data: "./data", Listen: "127.0.0.1:8080", Store: embedded,
		Log:   LogSettings{Format: "text", Level: "info"},
		Drain: DrainSettings{Timeout: 30 * time.Second, Receive: httpapi.DefaultDrainReceive},
		HTTP: HTTPSettings{
			BodyBudget: httpapi.DefaultBodyBudget, ReadHeaderTimeout: httpapi.DefaultReadHeaderTimeout,
			ReadTimeout:  httpapi.DefaultReadTimeout,
			WriteTimeout: httpapi.DefaultWriteTimeout, IdleTimeout: httpapi.DefaultIdleTimeout, Express: true,
			MaxStreams: httpapi.DefaultMaxStreams, MaxStreamsPerTenant: httpapi.DefaultMaxStreamsPerTenant,
		},
		Engine: EngineSetting{SegmentBytes: 64 << 20, CheckpointBytes: 64 << 20, IndexEntries: 1 << 20,
			Slices: true},
		Postgres: DatabaseSetting{StatementTimeout: 30 * time.Second, LockTimeout: 10 * time.Second,
			ConnectTimeout: 5 * time.Second, Rollups: true},
		Periods:   PeriodSettings{CheckEvery: time.Minute},
		Requests:  RequestSettings{Keep: idempotency.DefaultKeep, KeysPerSecond: 1000},
		Retention: RetentionSettings{Region: "us-east-1", Every: 24 * time.Hour},
		Sinks:     defaultSinks(),
	}
}

// loadSettings reads a file over the defaults. An empty path reads none.
func loadSettings(path string) (Settings, error) {
	s := defaultSettings()
	if path == "" {
		return s, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	if err := s.decode(b); err != nil {
		return s, fmt.Errorf("settings in %s: %w", path, err)
	}
	return s, nil
}

// unknownKey is how the YAML library says it, in terms of our types.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

func (s *Settings) decode(b []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	err := d.Decode(s)
	if errors.Is(err, io.EOF) {
		return nil // nothing but comments
	}
	if err != nil {
		return errors.New(unknownKey.ReplaceAllString(err.Error(), "unknown key $1"))
	}
	if err := d.Decode(&Settings{}); !errors.Is(err, io.EOF) {
		return errors.New("more than one document: write all settings into the first")
	}
	return s.check()
}

// check says what is wrong with the settings.
func (s *Settings) check() error {
	if s.Store != embedded && !isDatabase(s.Store) {
		return errors.New(`store: neither "embedded" nor the URL of a PostgreSQL database, ` +
			`postgres://user@host/database`)
	}
	if s.Data == "" {
		return errors.New("data: name a directory")
	}
	if err := checkAddress("listen", s.Listen); err != nil {
		return err
	}
	if s.MetricsListen != "" {
		if err := checkAddress("metrics_listen", s.MetricsListen); err != nil {
			return err
		}
	}
	if s.Log.Format != "text" && s.Log.Format != "json" {
		return fmt.Errorf("log.format: %q is neither text nor json", s.Log.Format)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.Log.Level)); err != nil {
		return fmt.Errorf("log.level: %q is not one of debug, info, warn, error", s.Log.Level)
	}
	if s.Drain.Delay < 0 {
		return errors.New("drain.delay: must not be negative")
	}
	if s.Periods.Grace < 0 {
		return errors.New("periods.grace: must not be negative")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"drain.timeout", s.Drain.Timeout}, {"drain.receive", s.Drain.Receive},
		{"http.read_header_timeout", s.HTTP.ReadHeaderTimeout}, {"http.read_timeout", s.HTTP.ReadTimeout},
		{"http.write_timeout", s.HTTP.WriteTimeout}, {"http.idle_timeout", s.HTTP.IdleTimeout},
		{"postgres.statement_timeout", s.Postgres.StatementTimeout}, {"postgres.lock_timeout", s.Postgres.LockTimeout},
		{"postgres.connect_timeout", s.Postgres.ConnectTimeout}, {"periods.check_every", s.Periods.CheckEvery},
		{"requests.keep", s.Requests.Keep}, {"retention.every", s.Retention.Every},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s: must be more than 0, for example 30s", d.name)
		}
	}
	return errors.Join(
		within("http.body_budget", s.HTTP.BodyBudget, minBodyBudget, 1<<50),
		within("http.max_connections", int64(s.HTTP.MaxConnections), 0, 1<<30),
		within("http.max_connections_per_address", int64(s.HTTP.MaxConnectionsPerAddress), 0, 1<<30), s.TLS.check(),
		within("http.max_streams", int64(s.HTTP.MaxStreams), 1, 1<<20),
		within("http.max_streams_per_tenant", int64(s.HTTP.MaxStreamsPerTenant), 1, 1<<20),
		within("engine.segment_bytes", int64(s.Engine.SegmentBytes), 1<<20, 1<<30),
		within("engine.checkpoint_bytes", s.Engine.CheckpointBytes, 64<<10, 1<<50),
		within("engine.index_entries", int64(s.Engine.IndexEntries), 1<<10, 1<<25),
		within("postgres.max_conns", int64(s.Postgres.MaxConns), 0, 10_000),
		within("requests.keys_per_second", s.Requests.KeysPerSecond, 1, 1<<30),
		s.RateLimits.check(), s.Retention.check(), s.Sinks.check(), checkRootKey(s.RootKey))
}

func within(name string, value, low, high int64) error {
	if value < low || value > high {
		return fmt.Errorf("%s: %d is not between %d and %d", name, value, low, high)
	}
	return nil
}

func checkAddress(name, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%s: %q is not host:port, for example 127.0.0.1:8080", name, addr)
	}
	return nil
}

// checkRootKey never repeats the key.
func checkRootKey(key string) error {
	if key == "" {
		return nil
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return fmt.Errorf("%s: printable ASCII without spaces only: it travels in a header", rootKeyVariable)
		}
	}
	return nil
}
