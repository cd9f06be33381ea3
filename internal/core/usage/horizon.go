package usage

import (
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// checkHorizon refuses what lies below the floor. The rows down there may be archived and their keys forgotten, so a
// fact that old could be one that was counted before: it is never guessed to be new. A fact without a time would get a
// new one each time it is sent and pass the floor for ever; with a horizon it has to say when it was. A correction
// takes its target's time.
func checkHorizon(f *Fact, floor calendar.Micros) *problem.Error {
	switch e := f.Event; {
	case floor == 0:
		return nil
	case e.Has(GivenTime):
		return checkFloor(e.Time, floor)
	case e.Corrects == "":
		return problem.At("time", "required: this deployment keeps keys up to a horizon, and an event that is sent "+
			"again must be recognized by its time")
	}
	return nil
}

func checkFloor(t, floor calendar.Micros) *problem.Error {
	if t >= floor {
		return nil
	}
	return problem.New(problem.BeyondHorizon,
		"time %s is before %s, where this ledger's horizon ends; it was not recorded", t, floor)
}

// targetFailure describes a target that cannot be read. One that was archived lies below the floor, and so would its
// correction.
func targetFailure(err error) *problem.Error {
	if problem.Is(err, problem.Archived) {
		return problem.Wrap(problem.BeyondHorizon, err,
			"the corrected event is archived: it lies before the ledger's horizon")
	}
	return unreadable(err)
}
