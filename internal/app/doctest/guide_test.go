package doctest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tallystick/tallystick/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every block of the guide is run, in order, in one shell, against a server on each store, and prints what stands under
// it.
func TestTheGuide(t *testing.T) {
	url, err := pgtest.Private(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	for name, onStore := range map[string]*strings.Replacer{
		"embedded": strings.NewReplacer(),
		"postgres": strings.NewReplacer(`--data "$DATA/ledger"`, `--store "`+url+`"`, `--from "$DATA/ledger"`,
			`--from "`+url+`"`),
	} {
		t.Run(name, func(t *testing.T) {
			here := strings.NewReplacer("8080", freePort(t), "bin/tallystick", filepath.Join(t.TempDir(), "tallystick"))
			sh := newShell(t)
			page := blocks(t, "docs/guide.md")
			ran := 0
			for i, b := range page {
				if b.language != "sh" {
					continue
				}
				want := ""
				if i+1 < len(page) && page[i+1].language == "text" {
					want = page[i+1].text
				}
				ran++
				if got := sh.run(here.Replace(onStore.Replace(b.text))); !matches(want, got) {
					t.Fatalf("docs/guide.md: the block of line %d prints\n%s\nnot\n%s\n%s", b.line, got, want,
						sh.errors())
				}
			}
			if ran < 20 {
				t.Errorf("only %d blocks were found", ran)
			}
		})
	}
}

// matches compares line by line, however lines end; … stands for anything in its line.
func matches(want, got string) bool {
	got = strings.ReplaceAll(got, "\r\n", "\n")
	var pattern []string
	for _, part := range strings.Split(strings.TrimRight(want, "\n"), "…") {
		pattern = append(pattern, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + strings.Join(pattern, "[^\n]*") + "$").MatchString(strings.TrimRight(got, "\n"))
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a\n", "a\n", true}, {"a…c\n", "abc", true}, {"a…c", "ab\nc", false}, {"a.c", "abc", false},
		{"a", "a\nb", false},
		{"", "", true}, {"", "x", false}, {"a\nb", "a\r\nb\r\n", true},
	} {
		if matches(c.want, c.got) != c.same {
			t.Errorf("%q and %q", c.want, c.got)
		}
	}
}

// shell is a bash that is typed into, block by block.
type shell struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	errFile *os.File
	blocks  int
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir := t.TempDir()
	errFile, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("bash", "--norc", "--noprofile")
	c.Dir, c.Stderr, c.Env = root, errFile, append(os.Environ(), "TMPDIR="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a group of its own, to end all of it
	in, errIn := c.StdinPipe()
	out, errOut := c.StdoutPipe()
	if errIn != nil || errOut != nil {
		t.Fatal(errIn, errOut)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		_ = errFile.Close()
	})
	return &shell{t: t, in: in, out: bufio.NewReader(out), errFile: errFile}
}

// run types a block and returns what it prints.
func (s *shell) run(block string) string {
	s.t.Helper()
	s.blocks++
	end := fmt.Sprintf("end of block %d", s.blocks)
	if _, err := fmt.Fprintf(s.in, "%s\necho; echo '%s'\n", block, end); err != nil {
		s.t.Fatal(err)
	}
	var got strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the shell has ended: %v: %s%s", err, got.String(), s.errors())
		}
		if line == end+"\n" {
			return got.String()
		}
		got.WriteString(line)
	}
}

// errors is what commands had to complain about.
func (s *shell) errors() string {
	b, err := os.ReadFile(s.errFile.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}
