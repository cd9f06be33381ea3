package pgtest

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Given a private server, when it ends as in a crash and begins again, then what was committed is there, and in the end nothing is left.
func TestServerComesAndGoes(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
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
