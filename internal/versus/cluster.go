package versus

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
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster is a private PostgreSQL: its own data, its own unix socket, no port.
type cluster struct {
	dir     string
	version string
	server  *exec.Cmd
	exited  chan error
}

const (
	superuser    = "postgres"
	startTimeout = time.Minute
	stopTimeout  = time.Minute
	pollEvery    = 50 * time.Millisecond
	// logTail is how much of the server's log an error repeats.
	logTail = 2000
)

// settings are what anyone would tune who loads events into PostgreSQL: memory for the tables, and room for the log, so that no
// checkpoint falls into a measurement. Durability stays at its default: fsync and synchronous_commit on.
var settings = []string{
	"listen_addresses=", "shared_buffers=512MB", "max_wal_size=4GB", "checkpoint_timeout=30min", "timezone=UTC", "jit=off",
	"max_connections=100", "wal_compression=off",
}

// fleeting is for tests that prove behavior, not speed.
var fleeting = []string{"fsync=off", "full_page_writes=off", "shared_buffers=32MB"}

func startCluster(ctx context.Context, careless bool) (*cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	// Not below a folder of ours: the server runs as another user, who could not reach it, and a socket's path must be short.
	dir, err := os.MkdirTemp("", "tallystick-pg-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	c := &cluster{dir: dir, exited: make(chan error, 1)}
	if err := c.start(ctx, bin, careless); err != nil {
		tail := c.logTail()
		c.stop()
		return nil, fmt.Errorf("%w%s", err, tail)
	}
	return c, nil
}

// binaries finds the newest PostgreSQL, which Debian keeps off the path.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // fails on a bad pattern only
	if len(found) == 0 {
		return "", errors.New("no initdb found: run make deps, which installs PostgreSQL")
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(newest), nil
}

func major(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb)))) // what is no number sorts first
	return n
}

func (c *cluster) start(ctx context.Context, bin string, careless bool) error {
	as, err := c.owner()
	if err != nil {
		return err
	}
	data := filepath.Join(c.dir, "data")
	// The log of initdb is its output; the sync is of empty tables.
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	args := []string{"-D", data, "-k", c.dir}
	all := settings
	if careless {
		all = slices.Concat(settings, fleeting)
	}
	for _, s := range all {
		args = append(args, "-c", s)
	}
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	defer func() { _ = log.Close() }()                              // the server has its own
	server := exec.Command(filepath.Join(bin, "postgres"), args...) //nolint:noctx // stopped by stop, in the way PostgreSQL wants
	server.SysProcAttr, server.Dir = as, c.dir
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	c.server = server
	go func() { c.exited <- server.Wait() }()
	return c.await(ctx)
}

// owner is whom the server runs as: PostgreSQL refuses to run as root.
func (c *cluster) owner() (*syscall.SysProcAttr, error) {
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	if os.Geteuid() != 0 {
		return as, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
		}
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", who.Username, err)
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", who.Username, err)
	}
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return as, os.Chown(c.dir, int(uid), int(gid))
}

// await returns once the server takes connections.
func (c *cluster) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.address())
		if err == nil {
			c.version = conn.PgConn().ParameterStatus("server_version")
			return conn.Close(ctx)
		}
		select {
		case <-time.After(pollEvery):
		case ended := <-c.exited:
			c.exited <- ended
			return fmt.Errorf("postgres ended: %w", errors.Join(ended, err))
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres: %w", err)
		}
	}
}

func (c *cluster) address() string {
	return "host=" + c.dir + " user=" + superuser + " dbname=postgres"
}

func (c *cluster) logTail() string {
	text, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		return ""
	}
	return "\n" + string(text[max(len(text)-logTail, 0):])
}

// stop ends the server without waiting for its clients, and removes its files.
func (c *cluster) stop() {
	if c.server != nil {
		_ = c.server.Process.Signal(syscall.SIGINT)
		select {
		case <-c.exited:
		case <-time.After(stopTimeout):
			_ = c.server.Process.Kill()
			<-c.exited
		}
	}
	_ = os.RemoveAll(c.dir)
}
