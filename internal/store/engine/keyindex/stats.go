package keyindex

// Stats is what an operator wants to see.
type Stats struct {
	Entries      int64 // in runs and frozen tables; the active table is the owner's to count
	Runs         int   // files
	Layers       int   // runs that a probe meets at most
	Frozen       int   // tables not yet flushed
	DiskBytes    int64
	FilterMemory int64 // sketches, filters and fences
	TableMemory  int64 // memory tables other than the active one

	Flushes       int64
	BytesFlushed  int64
	MergesRunning int
	MergesDone    int64
	BytesMerged   int64 // written by merges
	SketchesMade  int64

	FlushError error // of the last flush, nil if it succeeded
	MergeError error // of the last merge or sketch, nil if it succeeded
	Halted     bool  // a merge or sketch met damage: no more of both until rebuilt
	Doomed     int   // files that could not be removed yet
}

// Stats may be called at any time.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stats
	s.Runs, s.Layers, s.Frozen = len(x.view.runs), len(x.view.layers), len(x.frozen)
	for _, r := range x.view.runs {
		s.Entries += int64(r.Count)
		s.DiskBytes += r.size
		s.FilterMemory += r.memory()
	}
	for _, k := range x.view.sketches {
		s.FilterMemory += int64(len(k)) * 8
	}
	for _, t := range x.frozen {
		s.Entries += int64(len(t.entries))
		s.TableMemory += t.bytes()
	}
	if x.spare != nil {
		s.TableMemory += x.spare.bytes()
	}
	if x.merging.busy {
		s.MergesRunning = 1
	}
	s.FlushError, s.MergeError = x.flushing.err, x.merging.err
	s.Halted, s.Doomed = x.halted, len(x.doomed)
	return s
}
