// Package pgtest starts private PostgreSQL servers for tests: an unprivileged user, a unix socket in a temporary directory, no
// network, no fsync. One server is shared by the tests of a binary, each with a database of its own; a test that stops or
// breaks its server starts one for itself. It never touches a server that it did not start.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// settings make a server that starts fast and keeps nothing: what the machine loses, the tests do not miss. Killing the
// server's processes loses nothing, because the kernel still has what was written.
var settings = []string{
	"fsync=off", "full_page_writes=off", "listen_addresses=", "unix_socket_permissions=0777", "max_connections=200",
	"shared_buffers=128MB", "max_wal_size=2GB", "log_min_messages=fatal", "max_prepared_transactions=0",
}

// Server is a running PostgreSQL.
type Server struct {
	bin, dir string
	attr     *syscall.SysProcAttr
	settings []string
	made     atomic.Int64 // databases
}

// Start runs a server until stop is called.
func Start(extra ...string) (s *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	// The path of a unix socket has about a hundred bytes, which a test's own temporary directory may exceed.
	dir, err := os.MkdirTemp("/tmp", "pgtest")
	if err != nil {
		return nil, err
	}
	s = &Server{bin: bin, dir: dir, settings: append(slices.Clone(settings), extra...)}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := s.unprivileged(); err != nil {
		return nil, err
	}
	if err := s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"); err != nil {
		return nil, err
	}
	return s, s.Begin()
}

// binaries finds the newest installed major.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		path, err := exec.LookPath("initdb")
		if err != nil {
			return "", errors.New("pgtest: no PostgreSQL found: install the package postgresql")
		}
		return filepath.Dir(path), nil
	}
	major := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })), nil
}

// unprivileged gives the directory and the processes to another user when the tests run as root, which PostgreSQL refuses.
func (s *Server) unprivileged() error {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		s.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return os.Chown(s.dir, uid, gid)
	}
	return errors.New("pgtest: PostgreSQL does not run as root, and there is no user postgres or nobody")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) run(name string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attr
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "TZ=UTC")
	// A file, not a pipe: the server inherits it and would keep a pipe open.
	out, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		return fmt.Errorf("pgtest: %s: %w\n%s", name, err, said)
	}
	return nil
}

// Begin starts the server after End.
func (s *Server) Begin() error {
	options := []string{"-k", s.dir}
	for _, o := range s.settings {
		options = append(options, "-c", o)
	}
	return s.run("pg_ctl", "-D", s.data(), "-w", "-s", "-l", filepath.Join(s.dir, "server.log"), "-o", strings.Join(options, " "), "start")
}

// End stops the server at once, as a crash would: no checkpoint, connections cut.
func (s *Server) End() error {
	return s.run("pg_ctl", "-D", s.data(), "-w", "-s", "-m", "immediate", "stop")
}

// Stop ends the server and removes everything.
func (s *Server) Stop() error {
	err := s.End()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Socket is the directory of the server's socket; the file in it is named after port 5432.
func (s *Server) Socket() string { return s.dir }

// URL names a database of the server, as its superuser.
func (s *Server) URL(database string) string {
	return "postgres://postgres@/" + database + "?host=" + s.dir
}

// Create makes an empty database, or a copy of template, and returns its URL.
func (s *Server) Create(template string) (url string, err error) {
	name := "t" + strconv.FormatInt(s.made.Add(1), 10)
	statement := "CREATE DATABASE " + name
	if template != "" {
		statement += " TEMPLATE " + template + " STRATEGY file_copy"
	}
	return s.URL(name), s.Exec("postgres", statement)
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

// shared is the server of the whole test binary.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns the binary's server, starting it when it is first needed. The binary's TestMain calls Cleanup.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Private starts a server for one test, which may do with it what it likes.
func Private(t testing.TB, extra ...string) *Server {
	t.Helper()
	s, err := Start(extra...)
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

// Cleanup stops the shared server, if there is one.
func Cleanup() error {
	if shared.server == nil {
		return nil
	}
	return shared.server.Stop()
}
