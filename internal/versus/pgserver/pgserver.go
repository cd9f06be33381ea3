// Package pgserver runs private PostgreSQL servers: data in a temporary directory, a unix socket in it, no network, an
// unprivileged user. A server ends with the process that started it. The comparison measures on one, and the tests
// break theirs: they differ in the settings alone. It never touches a server that it did not start.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options of a server. The zero value is the system's newest PostgreSQL with its own defaults, which are durable.
type Options struct {
	// Bin is the folder of initdb and postgres. Default: the newest major that the system has.
	Bin string
	// Initdb holds more flags for making the data, such as a locale. Default: the locale is C.
	Initdb []string
	// Primary makes a standby of that server, which runs, instead of new data. Default: none.
	Primary *Server
	// Settings are parameters as name=value; where one is named twice, the later holds.
	Settings []string
}

const (
	superuser    = "postgres"
	startTimeout = time.Minute
	stopTimeout  = time.Minute
	pollEvery    = 5 * time.Millisecond
	// logTail is how much of the server's log an error repeats.
	logTail = 2000
)

// always holds for every private server.
var always = []string{"listen_addresses=", "unix_socket_permissions=0777", "timezone=UTC", "jit=off"}

// Server is a PostgreSQL of one's own. Begin, End and Stop are for one goroutine.
type Server struct {
	bin, dir string
	as       *syscall.SysProcAttr
	settings []string
	version  string
	running  *exec.Cmd // nil while it is stopped
	exited   chan error
}

// Start makes the data of a server and runs it until Stop.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Bin == "" {
		if o.Bin, err = installed(); err != nil {
			return nil, err
		}
	}
	// Not below a folder of ours: the server runs as another user, who may not reach it, and the path of a socket has
	// about a hundred bytes.
	dir, err := os.MkdirTemp("/tmp", "tallystick-pg-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	s := &Server{bin: o.Bin, dir: dir, settings: slices.Concat(always, o.Settings), exited: make(chan error, 1)}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start a private PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	if err := s.leaveRoot(); err != nil {
		return err
	}
	if err := s.reachBinaries(ctx); err != nil {
		return err
	}
	program := "initdb"
	args := append([]string{"-D", s.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"},
		o.Initdb...)
	if o.Primary != nil {
		program = "pg_basebackup"
		args = []string{"-D", s.data(), "-h", o.Primary.Socket(), "-U", superuser, "--write-recovery-conf",
			"--checkpoint=fast", "--no-sync"}
	}
	if out, err := s.command(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return s.Begin(ctx)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.as
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "TZ=UTC")
	return cmd
}

// Begin runs the server, after End too, and returns when it takes connections.
func (s *Server) Begin(ctx context.Context) error {
	args := []string{"-D", s.data(), "-k", s.dir}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has its own
	// It outlives the context of its start: End stops it, in the way PostgreSQL wants.
	server := s.command(context.WithoutCancel(ctx), "postgres", args...)
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return fmt.Errorf("run postgres: %w", err)
	}
	s.running = server
	go func() { s.exited <- server.Wait() }()
	if err := s.await(ctx); err != nil {
		return fmt.Errorf("%w%s", err, s.logTail())
	}
	return nil
}

// await returns once the server takes connections.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.URL(superuser))
		if err == nil {
			s.version = conn.PgConn().ParameterStatus("server_version")
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case ended := <-s.exited:
			s.running = nil
			return fmt.Errorf("postgres ended: %w", errors.Join(ended, err))
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres: %w", err)
		}
	}
}

// End stops the server at once, as a crash would: no checkpoint, connections cut.
func (s *Server) End() error {
	if s.running == nil {
		return nil
	}
	if err := s.running.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop postgres: %w", err)
	}
	defer func() { s.running = nil }()
	select {
	case <-s.exited: // it may say that it was killed, which it was
		return nil
	case <-time.After(stopTimeout):
		err := s.running.Process.Kill()
		<-s.exited
		return errors.Join(errors.New("postgres did not stop within a minute and was killed"), err)
	}
}

// Stop ends the server and removes everything.
func (s *Server) Stop() error { return errors.Join(s.End(), os.RemoveAll(s.dir)) }

// Socket is the directory of the server's socket; the file in it is named after port 5432.
func (s *Server) Socket() string { return s.dir }

// URL names a database of the server, as its superuser.
func (s *Server) URL(database string) string {
	return "postgres://" + superuser + "@/" + database + "?host=" + s.dir
}

// Version is what the server says of itself, such as 15.14.
func (s *Server) Version() string { return s.version }

func (s *Server) log() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) logTail() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return ""
	}
	return "\n" + string(text[max(len(text)-logTail, 0):])
}
