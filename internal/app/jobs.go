package app

import (
	"context"
	"time"
)

// job is work that a server does by itself, at its start and again and again. It must be safe on several nodes at once.
type job struct {
	name  string
	every time.Duration
	// work returns how much it did, for the log.
	work func(ctx context.Context) (done int, err error)
}

// jobs lists what the settings ask for.
func (s *Server) jobs() []job {
	var out []job
	if p := s.settings.Periods; p.AutoClose {
		out = append(out, job{"closing periods", p.CheckEvery, func(ctx context.Context) (int, error) {
			return s.billing.CloseDue(ctx, p.Grace)
		}})
	}
	if r := s.settings.Retention; r.Horizon > 0 {
		out = append(out, job{"archiving what is beyond the horizon", r.Every, s.retain})
	}
	return out
}

// startJobs runs each job on a goroutine of its own until stopJobs.
func (s *Server) startJobs() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stopJobs = func() {
		cancel()
		s.working.Wait()
	}
	s.working.Go(func() { s.sinks.Run(ctx) })
	for _, j := range s.jobs() {
		s.working.Go(func() { s.repeat(ctx, j) })
	}
}

func (s *Server) repeat(ctx context.Context, j job) {
	tick := time.NewTicker(j.every)
	defer tick.Stop()
	for {
		done, err := j.work(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Warn(j.name+" failed; it is tried again", "after", j.every, "error", err)
		case done > 0:
			s.log.Info(j.name, "done", done)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
