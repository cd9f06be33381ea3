package postgres

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
)

var (
	readRequest = &statement{name: "read_request", sql: `SELECT ` + changeColumns + ` FROM changes WHERE tenant_id = $1
		AND seq = (SELECT seq FROM request_keys WHERE tenant_id = $1 AND key = $2)`}
	putRequest = &statement{name: "put_request", sql: `INSERT INTO request_keys (tenant_id, key, seq, expires_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (tenant_id, key) DO UPDATE SET seq = excluded.seq, expires_at = excluded.expires_at`}
	// A new key takes the place of one that has expired, so that the table holds no more than ever lived at once, and nobody who serves
	// needs the right to delete.
	replaceRequest = &statement{name: "replace_request", sql: `UPDATE request_keys SET key = $2, seq = $3, expires_at = $4 WHERE tenant_id = $1
		AND key = (SELECT key FROM request_keys WHERE tenant_id = $1 AND expires_at <= $5 ORDER BY expires_at LIMIT 1)
		AND NOT EXISTS (SELECT FROM request_keys WHERE tenant_id = $1 AND key = $2)`}
)

// Request implements store.View.
func (v *view) Request(key string) (request.Stored, error) {
	if v.tx != nil {
		for i := len(v.tx.rows) - 1; i >= 0; i-- {
			if s, err := ledger.DecodeState(&v.tx.rows[i]); err == nil && s.Request != nil && s.Request.Key == key {
				return *s.Request, nil
			}
		}
	}
	missing := problem.New(problem.NotFound, "no request %q", key)
	if !clean(key) {
		return request.Stored{}, missing
	}
	var found *request.Stored
	err := v.ask(readRequest, func(in *reader) error {
		r, err := readChange(in)
		if err != nil {
			return err
		}
		s, err := ledger.DecodeState(&r)
		found = s.Request
		return err
	}, []byte(key))
	if err != nil {
		return request.Stored{}, err
	}
	if found == nil {
		return request.Stored{}, missing
	}
	return *found, nil
}

// keepRequest makes a stored answer findable. The answer that it displaces, if any, has expired; its row stays in the ledger.
func keepRequest(r *round, tenantID string, s *request.Stored, seq uint64, now calendar.Micros) {
	id := []byte(tenantID)
	place := [][]byte{id, []byte(s.Key), int8Param(int64(seq)), timeParam(s.ExpiresAt)}
	r.send(replaceRequest, nil, append(place, timeParam(now))...)
	r.send(putRequest, nil, place...)
}
