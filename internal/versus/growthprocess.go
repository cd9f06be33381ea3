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
)

// childProcess is this program once more, as a child that does a job.
type childProcess struct {
	command *exec.Cmd
	tell    io.Writer
	said    *bufio.Scanner
	ended   bool
}

func startChild(ctx context.Context, job childJob) (*childProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("write the child's job: %w", err)
	}
	c := &childProcess{command: exec.CommandContext(ctx, self, childCommand, string(text))}
	c.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.command.Stderr = os.Stderr
	if c.tell, err = c.command.StdinPipe(); err != nil {
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
	return c, nil
}

// until hears what the child says until it is enough.
func (c *childProcess) until(enough func(*childSays) bool) error {
	for c.said.Scan() {
		var one childSays
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

// turn lets a stopped child do one turn and stops it again. The last turn ends with what was seen in all of them.
func (c *childProcess) turn() (stage *Stage, err error) {
	if err := c.signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c.tell, "go\n"); err != nil {
		return nil, fmt.Errorf("speak to the child: %w", err)
	}
	err = c.until(func(said *childSays) bool {
		stage = said.Stage
		return said.Turned || stage != nil
	})
	if err != nil {
		return nil, err
	}
	return stage, c.signal(syscall.SIGSTOP)
}

func (c *childProcess) signal(s syscall.Signal) error {
	if err := c.command.Process.Signal(s); err != nil {
		return fmt.Errorf("signal the child: %w", err)
	}
	return nil
}

// kill ends the child without a chance to tidy up, if it has not ended.
func (c *childProcess) kill() error {
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

func (c *childProcess) wait() error {
	c.ended = true
	if err := c.command.Wait(); err != nil {
		return fmt.Errorf("the child failed: %w", err)
	}
	return nil
}
