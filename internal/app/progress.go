package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// barEvery is often enough to look alive.
	barEvery = 100 * time.Millisecond
	// lineEvery is for logs, where each report is a line that stays.
	lineEvery = 10 * time.Second
	barWidth  = 30
)

// progressBar shows how far long work has come: a bar that redraws itself on a terminal, now and then a line elsewhere.
// The zero value shows nothing. It belongs to one goroutine.
type progressBar struct {
	w     io.Writer
	label string
	bar   bool
	last  time.Time
	drawn bool
}

func newProgressBar(w io.Writer, label string) *progressBar {
	p := &progressBar{w: w, label: label, last: time.Now()}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.bar = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

func (p *progressBar) set(done, total uint64) {
	if p.w == nil || total == 0 {
		return
	}
	every := lineEvery
	if p.bar {
		every = barEvery
	}
	if time.Since(p.last) < every {
		return
	}
	p.last, p.drawn = time.Now(), true
	percent := min(100, done*100/total)
	if !p.bar {
		fmt.Fprintf(p.w, "%s: %d%%\n", p.label, percent)
		return
	}
	full := int(percent) * barWidth / 100
	fmt.Fprintf(p.w, "\r%s [%s%s] %3d%%", p.label, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full),
		percent)
}

// bytes is set for what counts in int64.
func (p *progressBar) bytes(done, total int64) { p.set(uint64(max(done, 0)), uint64(max(total, 0))) }

// end leaves the terminal's line as it was found.
func (p *progressBar) end() {
	if p.bar && p.drawn {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", len(p.label)+barWidth+8))
	}
}
