package killtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

const rootKey = "kill-test-root-key"

// settings of every server. What is bounded is small, so that kills meet rolling segments, flushed keys and checkpoints
// too.
const settings = `
listen: 127.0.0.1:0
log: {format: json, level: info}
engine: {segment_bytes: 1048576, checkpoint_bytes: 131072, index_entries: 2048}
sinks: {allow_private_addresses: true, retries: [10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms, 10ms]}
`

// hasty settings find out soon that a database does not answer.
const hasty = settings + `
postgres: {statement_timeout: 2s, lock_timeout: 2s, connect_timeout: 1s}
`

const (
	settingsFile = "settings.yaml"
	hastyFile    = "hasty.yaml"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return os.RemoveAll(built.dir) })
}

// built is the program, made once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary is tallystick, built from this checkout, on one store.
type binary struct {
	path, config string
	store        []string // the flag that names it
}

func build(t *testing.T, store ...string) binary {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "killtest"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", built.dir,
			"github.com/tallystick/tallystick/cmd/tallystick").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
			return
		}
		for name, text := range map[string]string{settingsFile: settings, hastyFile: hasty} {
			built.err = errors.Join(built.err, os.WriteFile(filepath.Join(built.dir, name), []byte(text), 0o600))
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return binary{path: filepath.Join(built.dir, "tallystick"), config: filepath.Join(built.dir, settingsFile),
		store: store}
}

// hasty is the same with settings for a database that is about to fail.
func (b binary) hasty() binary {
	b.config = filepath.Join(built.dir, hastyFile)
	return b
}

// process is one life of the server.
type process struct {
	cmd  *exec.Cmd
	url  chan string // gets the address once it listens, or is closed when the process ended before
	log  sync.WaitGroup
	text strings.Builder // its log; read it after log.Wait
}

func (b binary) start(t *testing.T) *process {
	t.Helper()
	p := &process{cmd: exec.Command(b.path, append([]string{"serve", "--config", b.config}, b.store...)...),
		url: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), "TALLYSTICK_ROOT_KEY="+rootKey)
	// no test leaves a server behind, however it ends
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.log.Go(func() { p.follow(stderr) })
	t.Cleanup(p.end)
	return p
}

// follow reads the log until the process ends, and finds the address in it.
func (p *process) follow(r io.Reader) {
	defer close(p.url)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		p.text.WriteString(lines.Text() + "\n")
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			p.url <- "http://" + line.Address
		}
	}
}

// end ends the process if a test that failed has left it running.
func (p *process) end() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	p.log.Wait()
	_ = p.cmd.Wait() // the test has said already what is wrong
}

// kill ends the process at once and waits for it.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	p.log.Wait()
	err := p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the server ended by itself: %v\n%s", err, p.text.String())
	}
}

// stop asks the process to end and wants exit code 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.log.Wait()
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("SIGTERM: %v\n%s", err, p.text.String())
	}
}

// ready waits until the server can commit, and returns its address.
func (p *process) ready(t *testing.T) string {
	t.Helper()
	url, ok := <-p.url
	if !ok {
		p.log.Wait()
		t.Fatalf("the server did not start: %v\n%s", p.cmd.Wait(), p.text.String())
	}
	c := connect(t, url, "")
	defer c.CloseIdleConnections()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c.Ready(context.Background()) != nil {
		<-tick.C
	}
	return url
}

// connect makes a client that never retries: whatever is in doubt, the test wants to know.
func connect(t *testing.T, url, key string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, key, append(opts, client.WithRetry(client.RetryPolicy{MaxAttempts: 1}))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verify runs the command on the stopped store and returns how many rows it saw.
func (b binary) verify(t *testing.T) uint64 {
	t.Helper()
	out, err := exec.Command(b.path, append([]string{"verify", "--json"}, b.store...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("verify: %v\n%s", err, out)
	}
	var report struct {
		OK   bool
		Rows uint64
	}
	if err := json.Unmarshal(out, &report); err != nil || !report.OK {
		t.Fatalf("verify said %s (%v)", out, err)
	}
	return report.Rows
}
