package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Address names the database of a URL for people: host, port and name, and nothing that is secret.
func Address(databaseURL string) string {
	c, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return "postgres"
	}
	host := c.Host
	if strings.HasPrefix(host, "/") {
		host = url.PathEscape(host) // the directory of a socket
	}
	return fmt.Sprintf("postgres://%s:%d/%s", host, c.Port, url.PathEscape(c.Database))
}

// moveLock is the advisory lock that a move holds on its source and its target: the bytes of "tallymov".
const moveLock = 0x74616c6c796d6f76

// ReserveMove keeps other moves away from a database until release is called. It fails when the database is in a move
// already, also as the other end of the same one under another name.
func ReserveMove(ctx context.Context, databaseURL string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to reserve the database: %w", err)
	}
	// the lock ends with its connection, however that ends
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(moveLock)).Scan(&got); err != nil {
		release()
		return nil, fmt.Errorf("reserve the database: %w", err)
	}
	if !got {
		release()
		return nil, errors.New("the database takes part in a move already, " +
			"or is both source and target of this one under two names")
	}
	return release, nil
}
