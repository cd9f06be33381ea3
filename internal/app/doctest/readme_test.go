package doctest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// root is the repository's.
const root = "../../.."

// ports are handed out from below the range that systems take for port 0 and for connections, so that nobody gets one
// in between.
var ports atomic.Int32

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		n := 20000 + (int32(os.Getpid())*7+ports.Add(1))%10000
		port := strconv.Itoa(int(n))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
}

// blocks returns the fenced blocks of a page, in order.
func blocks(t *testing.T, page string) (out []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	var b *block
	for n, line := range strings.Split(string(text), "\n") {
		switch {
		case b == nil && strings.HasPrefix(line, "```"):
			b = &block{language: strings.TrimPrefix(line, "```"), line: n + 1}
		case b != nil && line == "```":
			out = append(out, *b)
			b = nil
		case b != nil:
			b.text += line + "\n"
		}
	}
	if b != nil {
		t.Fatalf("%s: the block of line %d does not end", page, b.line)
	}
	return out
}

type block struct {
	language, text string
	line           int
}

// The block is pasted whole into each shell, as a script and as people do it: into an interactive one, where zsh knows
// no comments and history is expanded. Two pastes in one session work too: nothing of the first is in the way of the
// second.
func TestTheReadmesFirstBlockWorksWhenPasted(t *testing.T) {
	var first string
	for _, b := range blocks(t, "README.md") {
		if strings.Contains(b.text, "tallystick serve") {
			first = b.text
			break
		}
	}
	if first == "" {
		t.Fatal("the README has no block that serves")
	}
	binary := filepath.Join(t.TempDir(), "tallystick")
	for name, shell := range map[string][]string{
		"bash script": {"bash", "--norc", "--noprofile"}, "bash": {"bash", "--norc", "--noprofile", "-i"},
		"zsh script": {"zsh", "-f"}, "zsh": {"zsh", "-f", "-i"},
	} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			pasted := strings.ReplaceAll(strings.ReplaceAll(first, "8080", port), "bin/tallystick", binary)
			out := paste(t, shell, pasted+"\n"+pasted)
			for n := range 2 {
				for _, want := range []string{
					`{"status":"ready"}`, `"slug":"api_calls"`, `{"id":"req_1","status":"accepted","seq":4}`,
					`{"id":"req_1","status":"duplicate","seq":4}`,
					`"code":"conflict"`, `"total":"3"`, `"group":{"customer":"cus_42"},"value":"3"`, `"limit":"5"`,
					`"plan":"free"`,
					`"remaining":"2"`, "ok: ",
				} {
					_, rest, found := strings.Cut(out, want)
					if !found {
						t.Fatalf("paste %d printed no %s where it should: what is left is %s", n+1, want, out)
					}
					out = rest
				}
			}
			if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
				_ = c.Close()
				t.Error("the server was left running")
			}
		})
	}
}

// paste types lines into a shell and returns what was printed. All that the shell started ends with it.
func paste(t *testing.T, shell []string, text string) string {
	t.Helper()
	c := exec.Command(shell[0], shell[1:]...)
	c.Dir, c.Stdin = root, strings.NewReader(text)
	c.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal of whoever runs the tests, and a group of its own
	// After the shell has ended: whatever still has its output open was left running.
	c.WaitDelay = 10 * time.Second
	err := c.Run()
	if c.Process != nil {
		// What a broken block left running; mostly there is no such group any more.
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s%s", shell, err, out.String(), errOut.String())
	}
	return out.String()
}
