package versus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
)

// childProcess is this program once more, as a child that does a job. The job is the first line it reads, because the
// arguments of a process are for all to see and a job may hold keys. It says lines of JSON.
type childProcess[Says any] struct {
	command *exec.Cmd
	input   io.Writer
	said    *bufio.Scanner
	ended   bool
}

func startChild[Says any](ctx context.Context, command string, job any) (*childProcess[Says], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("write the child's job: %w", err)
	}
	c := &childProcess[Says]{command: exec.CommandContext(ctx, self, command)}
	c.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.command.Stderr = os.Stderr
	if c.input, err = c.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("speak to the child: %w", err)
	}
	said, err := c.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("hear the child: %w", err)
	}
	c.said = bufio.NewScanner(said)
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start the child: %w", err)
	}
	if err := c.send(string(text)); err != nil {
		return nil, errors.Join(err, c.kill())
	}
	return c, nil
}

// newChildCommand is the other end of startChild. What follows the job's line can be read from commands.
func newChildCommand[Job any](name, short string,
	run func(ctx context.Context, job Job, commands *bufio.Scanner, out io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:    name,
		Short:  short,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			commands := bufio.NewScanner(c.InOrStdin())
			commands.Scan() // nothing is no job
			var job Job
			if err := json.Unmarshal(commands.Bytes(), &job); err != nil {
				return &usageError{fmt.Errorf("job: %w", errors.Join(commands.Err(), err))}
			}
			return run(c.Context(), job, commands, c.OutOrStdout())
		},
	}
}

// until hears what the child says until it is enough.
func (c *childProcess[Says]) until(enough func(*Says) bool) error {
	for c.said.Scan() {
		var one Says
		if err := json.Unmarshal(c.said.Bytes(), &one); err != nil {
			return fmt.Errorf("the child said %.200q: %w", c.said.Text(), err)
		}
		if enough(&one) {
			return nil
		}
	}
	if err := c.said.Err(); err != nil {
		return fmt.Errorf("hear the child: %w", err)
	}
	return errors.Join(errors.New("the child ended before it had said enough"), c.wait())
}

func (c *childProcess[Says]) send(line string) error {
	if _, err := io.WriteString(c.input, line+"\n"); err != nil {
		return fmt.Errorf("speak to the child: %w", err)
	}
	return nil
}

func (c *childProcess[Says]) signal(s syscall.Signal) error {
	if err := c.command.Process.Signal(s); err != nil {
		return fmt.Errorf("signal the child: %w", err)
	}
	return nil
}

// kill ends the child without a chance to tidy up, if it has not ended.
func (c *childProcess[Says]) kill() error {
	if c.ended {
		return nil
	}
	_ = c.command.Process.Kill() // or it has ended by itself
	var exit *exec.ExitError
	if err := c.wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

func (c *childProcess[Says]) wait() error {
	c.ended = true
	if err := c.command.Wait(); err != nil {
		return fmt.Errorf("the child failed: %w", err)
	}
	return nil
}
