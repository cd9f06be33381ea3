package journal

import (
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// gatedFiles are files of which the opening is announced and waits.
func gatedFiles(t *testing.T) (o *openFiles, opening chan uint32, proceed chan struct{}) {
	t.Helper()
	fs := vfs.NewMem()
	for _, name := range []string{"1", "2"} {
		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	opening, proceed = make(chan uint32), make(chan struct{})
	o = &openFiles{fs: fs, path: func(number uint32) string { return string(rune('0' + number)) },
		files: map[uint32]*openFile{}}
	o.load = func(number uint32, _ vfs.File) ([]prunedRecord, error) {
		opening <- number
		<-proceed
		return nil, nil
	}
	return o, opening, proceed
}

// loan is what a borrower got.
type loan struct {
	file *openFile
	err  error
}

func (o *openFiles) later(number uint32) chan loan {
	out := make(chan loan, 1)
	go func() {
		f, err := o.borrow(number)
		out <- loan{f, err}
	}()
	return out
}

// While one file is opened on a slow disk, those who want another that is open have it at once, and two who open the
// same share one.
func TestAnOpenFileIsLentWhileAnotherIsOpened(t *testing.T) {
	o, opening, proceed := gatedFiles(t)
	first := o.later(1)
	<-opening
	proceed <- struct{}{}
	held := <-first
	one, two := o.later(2), o.later(2)
	<-opening
	<-opening // both are at the disk
	var lent sync.WaitGroup
	lent.Go(func() {
		f, err := o.borrow(1)
		if err != nil || f != held.file {
			t.Error(f, err)
			return
		}
		o.release(f)
	})
	lent.Wait()
	close(proceed)
	a, b := <-one, <-two
	if a.err != nil || b.err != nil || a.file != b.file || a.file.loans != 2 {
		t.Errorf("two borrowers have %+v and %+v", a, b)
	}
}

// A file that a segment no longer has is not kept by who opened it before it was forgotten; and nothing is kept after
// the close.
func TestAForgottenFileIsOpenedAnew(t *testing.T) {
	o, opening, proceed := gatedFiles(t)
	got := o.later(1)
	<-opening
	o.forget(1)
	proceed <- struct{}{}
	<-opening // again
	proceed <- struct{}{}
	if l := <-got; l.err != nil || o.files[1] != l.file {
		t.Fatalf("lent %+v", l)
	}
	got = o.later(2)
	<-opening
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	proceed <- struct{}{}
	if l := <-got; !errors.Is(l.err, ErrClosed) || l.file != nil || o.files[2] != nil {
		t.Errorf("after the close %+v", l)
	}
}
