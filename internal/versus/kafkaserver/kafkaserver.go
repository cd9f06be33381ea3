// Package kafkaserver runs private Apache Kafkas: one node in KRaft mode that is broker and controller, its data in a
// temporary folder. It can be killed and started again at the same address with the same data, and ends with the
// process that started it. The bench of sinks measures on one, and tests break theirs. It never touches a broker that
// it did not start.
package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallystick/tallystick/internal/loopback"
)

const (
	// startTimeout bounds a start on a machine that is busy with other things; a quiet one takes five seconds.
	startTimeout = 2 * time.Minute
	// logTail is how much of the broker's log an error repeats.
	logTail = 4000
	// clusterID is any 16 bytes in Base64 of URLs.
	clusterID = "VGFsbHlzdGlja1Rlc3Q0MQ"
)

// Server is a Kafka of one node. Begin, Kill and Stop are for one goroutine.
type Server struct {
	java, jars string
	dir        string
	address    string
	controller string
	running    *exec.Cmd // nil while it is down
	ended      chan struct{}
}

// Start makes the data of a server and runs it until Stop. It needs Java and the jars, which make deps installs.
func Start() (*Server, error) {
	jars, err := findJars()
	if err != nil {
		return nil, err
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("run make deps, which installs Java: %w", err)
	}
	dir, err := os.MkdirTemp("", "tallystick-kafka-")
	if err != nil {
		return nil, err
	}
	s := &Server{java: java, jars: jars, dir: dir, address: loopback.Address(), controller: loopback.Address()}
	if err := s.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a private Kafka: %w", err), s.Stop())
	}
	return s, nil
}

// findJars finds what make deps installed into the checkout that this process works in.
func findJars() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find Kafka: no go.mod above the working directory: run make deps in a checkout")
		}
		dir = filepath.Dir(dir)
	}
	found, err := filepath.Glob(filepath.Join(dir, "bin/tools/kafka-*/kafka-clients-*.jar"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("find Kafka: one is needed in bin/tools, found %d: run make deps", len(found))
	}
	return filepath.Dir(found[0]), nil
}

func (s *Server) make() error {
	if err := os.WriteFile(s.settings(), []byte(s.properties()), 0o600); err != nil {
		return err
	}
	format := s.command("kafka.tools.StorageTool", "format", "-t", clusterID, "-c", s.settings())
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format the data: %w: %s", err, out)
	}
	return s.Begin()
}

// properties are those of a node that comes up fast, also after it was killed: its registration of before runs out in
// a second. Topics are made by CreateTopic alone.
func (s *Server) properties() string {
	return strings.Join([]string{
		"process.roles=broker,controller", "node.id=1",
		"controller.quorum.voters=1@" + s.controller,
		"listeners=PLAINTEXT://" + s.address + ",CONTROLLER://" + s.controller,
		"advertised.listeners=PLAINTEXT://" + s.address,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs=" + filepath.Join(s.dir, "data"),
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=1",
		"group.initial.rebalance.delay.ms=0",
		"broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=200",
		"num.network.threads=2", "num.io.threads=2", "log.cleaner.enable=false",
	}, "\n") + "\n"
}

func (s *Server) settings() string { return filepath.Join(s.dir, "server.properties") }
func (s *Server) log() string      { return filepath.Join(s.dir, "log") }

// command runs a class of Kafka in a process group of its own that ends with this process.
func (s *Server) command(class string, args ...string) *exec.Cmd {
	java := []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(s.jars, "*"), class}
	cmd := exec.CommandContext(context.Background(), s.java, append(java, args...)...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Address is where clients find the broker.
func (s *Server) Address() string { return s.address }

// Begin starts the broker, after Kill too, and returns when it serves.
func (s *Server) Begin() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the broker has its own
	cmd := s.command("kafka.Kafka", s.settings())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	s.running, s.ended = cmd, ended
	if err := s.serves(ended); err != nil {
		return errors.Join(err, s.tail())
	}
	return nil
}

// serves waits until the broker is part of its own cluster and gives out numbers of producers, which it does last.
func (s *Server) serves(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ask := kmsg.NewPtrInitProducerIDRequest()
	ask.ProducerID, ask.ProducerEpoch = -1, -1
	for {
		answer, err := ask.RequestWith(ctx, client)
		if err == nil {
			err = kerr.ErrorForCode(answer.ErrorCode)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the broker does not serve: %w", err)
		}
	}
}

func (s *Server) client() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(s.address), kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(50*time.Millisecond))
}

func (s *Server) tail() error {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err
	}
	return fmt.Errorf("the broker's log ends: %s", text[max(0, len(text)-logTail):])
}

// Kill ends the broker at once, as a crash does. Nothing of it runs when Kill returns.
func (s *Server) Kill() {
	if s.running == nil {
		return
	}
	_ = syscall.Kill(-s.running.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-s.ended
	s.running = nil
}

// Stop kills the broker and removes its data.
func (s *Server) Stop() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

// CreateTopic makes a topic with settings such as "max.message.bytes=1000". A broker that was kept from its processor
// for longer than its registration lasts is no member of its own cluster until it comes to register again: it is
// waited for.
func (s *Server) CreateTopic(ctx context.Context, name string, partitions int32, settings ...string) error {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, &value
		topic.Configs = append(topic.Configs, config)
	}
	ask := kmsg.NewPtrCreateTopicsRequest()
	ask.Topics = append(ask.Topics, topic)
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		answer, err := ask.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, kerr.InvalidReplicationFactor) || ctx.Err() != nil:
			return fmt.Errorf("create topic %s: %w", name, err)
		}
	}
}
