// Package app puts the program together: settings, the server and its life, and one file per command. It owns what
// runs, in which order it starts and stops, and what a person at a terminal reads. It never decides anything about
// facts, keys or bills, and nothing below it knows that it exists.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1 // the check failed, or the work could not be done
	exitUsage  = 2 // wrong use: flags, arguments, settings
)

// usageError is an error of whoever typed the command.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func wrongUse(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Main runs the command line that the process was started with and returns its exit code. SIGINT and SIGTERM end the
// command's context; a second one ends the process.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Run runs one command line.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRootCommand()
	root.command.SetArgs(args)
	root.command.SetOut(out)
	root.command.SetErr(errOut)
	err := root.command.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errOut, "tallystick: %v\n", err)
	var wrong *usageError
	// What fails before the command itself runs is a flag or an argument.
	if errors.As(err, &wrong) || !root.began {
		fmt.Fprintln(errOut, "Run the command with --help to see how it is used.")
		return exitUsage
	}
	return exitFailed
}
