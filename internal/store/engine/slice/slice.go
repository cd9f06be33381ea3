// Package slice keeps usage sorted for reading: Parquet files of one month each, sorted by tenant, meter, customer and
// time, which any tool can read and which serve questions about a span of time without reading the journal. It owns the
// directory of these files: which of them count, how small ones become large ones, and what is missing after damage. It
// is never an authority: everything in it comes from the journal and can be dropped and made again, and nothing that
// was decided depends on it.
package slice

import (
	"cmp"
	"slices"

	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// # How slices come and go
//
//	journal  ──▶ Batch ──▶ one file for each month      (Add: the part of the journal after what is covered)
//	files of a month ──▶ one file in their place        (Merge: tiers of fanout, bounded in rows)
//	a lost file ──▶ a hole ──▶ Batch ──▶ a file         (Fill: the same, for one month of one part of the journal)
//
// Invariants:
//
//  1. The manifest alone says what counts. A file is complete and synced, and its name durable, before a manifest names
//     it; a manifest is replaced by a rename. So a crash leaves the old set of files or the new one, and files that no
//     manifest names, which the next start removes. Doing the work again after a crash gives the same rows.
//  2. A file holds exactly one month's rows of one span of the journal. Spans of a month never overlap, files and holes
//     alike, and lie before Covered. So every row up to Covered is in exactly one file, or in a hole, which a reader
//     looks up in the journal, as it does with what comes after Covered.
//  3. Only durable records are sliced: a position that a crash could take back must not be covered.
//  4. A file that readers use stays until the last of them has gone, named by a manifest or not.
//
// Merging neighbors only, in the order of the journal, keeps spans of a month contiguous: that is what makes a hole one
// span. Rows of neighbors hardly overlap in time, so a merge copies long stretches.
//
// Rejected: files for each tenant. Ten thousand tenants would make ten thousand files of each part of the journal. A
// tenant's rows are next to one another in a month's file, and its bounds are in the footer.
//
// Rejected: merging all of a month into one file. The last merge would rewrite everything; above maxMergeRows files
// stay as they are, and a month of a billion rows is some twenty of them.

const (
	// fanout is how many files of a tier become one of the next. A query of a month reads at most fanout files of each
	// tier, and a row is rewritten once for each tier.
	fanout = 8
	// tierRows is where the second tier begins; each further one at fanout times as many.
	tierRows = 128 << 10
	maxTier  = 15
	// maxMergeRows bounds what one merge writes: some minutes of one core, and two gigabytes.
	maxMergeRows = 64 << 20
)

// tierOf is the tier of a file that was not merged.
func tierOf(rows int64) uint32 {
	tier := uint32(0)
	for ; rows >= tierRows && tier < maxTier; rows /= fanout {
		tier++
	}
	return tier
}

func sortSpans(spans []Span) {
	slices.SortFunc(spans, func(a, b Span) int { return comparePositions(a.From, b.From) })
}

func comparePositions(a, b journal.Position) int {
	return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
}
