package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// installed finds the newest PostgreSQL of the system. Debian keeps it off the path, one folder for each major.
func installed() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // fails on a bad pattern only
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("no PostgreSQL found: run make deps, which installs it")
	}
	return filepath.Dir(path), nil
}

func major(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb)))) // what is no number sorts first
	return n
}

// leaveRoot gives the folder and the processes to another user where we are root, whom PostgreSQL refuses to run as.
func (s *Server) leaveRoot() error {
	s.as = &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody: %w", err)
		}
	}
	uid, err1 := strconv.ParseUint(who.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("user %s: %w", who.Username, err)
	}
	s.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, int(uid), int(gid))
}

// reachBinaries copies the binaries to where the server's user can run them, if they are in a folder that is closed to
// it: a checkout below root's home is.
func (s *Server) reachBinaries(ctx context.Context) error {
	refused := s.command(ctx, "initdb", "--version").Run()
	if refused == nil {
		return nil
	}
	if s.as.Credential == nil {
		return fmt.Errorf("run initdb: %w", refused)
	}
	tree := filepath.Join(s.dir, "binaries")
	if err := os.CopyFS(tree, os.DirFS(filepath.Dir(s.bin))); err != nil {
		return fmt.Errorf("copy PostgreSQL: %w", err)
	}
	err := filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(s.as.Credential.Uid), int(s.as.Credential.Gid))
	})
	if err != nil {
		return fmt.Errorf("give the copy of PostgreSQL away: %w", err)
	}
	s.bin = filepath.Join(tree, filepath.Base(s.bin))
	if err := s.command(ctx, "initdb", "--version").Run(); err != nil {
		return fmt.Errorf("run initdb: %w", err)
	}
	return nil
}
