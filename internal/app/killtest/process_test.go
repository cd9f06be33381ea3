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
)

const rootKey = "kill-test-root-key"

// settings make everything that is bounded small, so that kills meet rolling segments, flushed keys and checkpoints too.
const settings = `
listen: 127.0.0.1:0
log: {format: json, level: info}
engine: {segment_bytes: 1048576, checkpoint_bytes: 131072, index_entries: 2048}
`

// binary is tallystick, built from this checkout.
type binary struct {
	path, config, data string
}

func build(t *testing.T) binary {
	t.Helper()
	dir := t.TempDir()
	b := binary{path: filepath.Join(dir, "tallystick"), config: filepath.Join(dir, "settings.yaml"), data: filepath.Join(dir, "data")}
	if out, err := exec.Command("go", "build", "-o", b.path, "github.com/tallystick/tallystick/cmd/tallystick").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.WriteFile(b.config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
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
	p := &process{cmd: exec.Command(b.path, "serve", "--config", b.config, "--data", b.data), url: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), "TALLYSTICK_ROOT_KEY="+rootKey)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.log.Go(func() { p.follow(stderr) })
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
	out, err := exec.Command(b.path, "verify", "--data", b.data, "--json").Output()
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
