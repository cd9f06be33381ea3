package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// Given a private server of either major, when it ends as in a crash and begins again, then what was committed is
// there, and in the end nothing is left.
func TestServerComesAndGoes(t *testing.T) {
	majors := map[string]string{} // by version
	for name, start := range map[string]func() (*Server, error){
		"system": func() (*Server, error) { return start() },
		"newer":  startNewer,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := start()
			if err != nil {
				t.Fatal(err)
			}
			major, _, _ := strings.Cut(s.Version(), ".")
			majors[major] = name
			comesAndGoes(t, s)
		})
	}
	if len(majors) != 2 {
		t.Errorf("the two majors are one: %v", majors)
	}
}

func comesAndGoes(t *testing.T, s *Server) {
	t.Helper()
	url, err := s.Create("")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Exec("t1", "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(context.Background(), url); err == nil {
		t.Error("a server that ended answers")
	}
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(context.Background(), "SELECT n FROM kept").Scan(&n); err != nil || n != 7 {
		t.Errorf("the table reads %d, %v", n, err)
	}
	if err := conn.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Socket()); !os.IsNotExist(err) {
		t.Errorf("the server's directory is still there: %v", err)
	}
}

// Given binaries in a folder that only its owner may enter, as a checkout in root's home is, when a server is started
// as somebody else, then it runs all the same.
func TestBinariesInAClosedFolder(t *testing.T) {
	bin, err := newerBinaries()
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(bin), filepath.Join(closed, "native")); err != nil {
		t.Fatal(err)
	}
	s, err := run(pgserver.Options{Bin: filepath.Join(closed, "native", "bin"), Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Exec("postgres", "SELECT 1"); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
