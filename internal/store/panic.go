package store

import (
	"fmt"
	"runtime/debug"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// RunUpdate runs the function of an Update for a store. A panic in it becomes the error of that call, Internal with a
// PanicError as its cause, and goes no further: the goroutine that it runs in may be the one that commits for
// everybody.
func RunUpdate(fn func(tx Tx) error, tx Tx) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = problem.Wrap(problem.Internal, &PanicError{Value: cause, Stack: debug.Stack()},
				"an unexpected error; nothing was changed, and the server's log has it under this request_id")
		}
	}()
	return fn(tx)
}

// PanicError is what a function panicked with, and where.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the error that it panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
