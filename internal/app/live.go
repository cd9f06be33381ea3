package app

import (
	"context"
	"errors"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
)

// The stages of a verification, as progress names them.
const (
	stageFiles = "reading files"
	stageBooks = "recounting"
)

// verifyLive examines a store while it serves: one tenant's books, or the files of an embedded store and all books when
// no tenant is named.
func verifyLive(ctx context.Context, s store.Store, tenantID string, progress func(stage string, done,
	total uint64)) (report verify.Report, err error) {
	books := verify.Options{Progress: func(done, total uint64) { progress(stageBooks, done, total) }}
	e, embedded := s.(*engine.Engine)
	if !embedded {
		return verify.Run(ctx, only(s, tenantID), books)
	}
	if tenantID == "" {
		err := e.Verify(ctx, func(done, total int64) {
			progress(stageFiles, uint64(max(done, 0)), uint64(max(total, 0)))
		})
		if err != nil && !isFinding(err) {
			return report, err
		}
		if err != nil {
			report.Found++
			report.Differences = append(report.Differences,
				verify.Difference{What: "files", Want: "whole, and as the journal has it", Got: err.Error()})
			return report, nil
		}
	}
	moment, err := e.Snapshot(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, moment.Release()) }()
	return verify.Run(ctx, only(moment, tenantID), books)
}

// isFinding separates what is wrong with files from what kept them from being read to their end.
func isFinding(err error) bool {
	return problem.CodeOf(err) == "" && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// only shows one tenant of the ledgers, or all of them when it is empty.
func only(l verify.Ledgers, tenantID string) verify.Ledgers {
	if tenantID == "" {
		return l
	}
	return oneLedger{l, tenantID}
}

type oneLedger struct {
	verify.Ledgers
	id string
}

func (o oneLedger) View(ctx context.Context, id string, fn func(v store.View) error) error {
	if id != o.id {
		return problem.New(problem.NotFound, "no tenant %q", id)
	}
	return o.Ledgers.View(ctx, id, fn)
}

func (o oneLedger) Tenants(_ context.Context, after string, _ int) ([]store.Listed, error) {
	if after >= o.id {
		return nil, nil
	}
	return []store.Listed{{ID: o.id}}, nil
}
