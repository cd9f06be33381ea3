package versus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallystick/tallystick/internal/versus/kafkaserver"
)

// outlet is where a kind of sink delivers to, for the whole run. Every measurement has a place of its own there.
type outlet interface {
	name() string
	// open makes an empty place and returns what a sink that delivers to it is made of, beside its name.
	open(ctx context.Context, place string) (map[string]any, error)
	// rows is how many rows of events the place that was opened last has.
	rows(ctx context.Context) (int64, error)
	close() error
}

// unique keeps runs on one server apart by the time.
func unique(place string) string { return place + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

// hookOutlet is a webhook that answers at once.
type hookOutlet struct {
	listener net.Listener
	server   *http.Server
	done     chan error

	mu   sync.Mutex // guards what follows
	path string     // of the place that was opened last
	seen map[string]struct{}
	got  int64
}

func startHook(ctx context.Context) (*hookOutlet, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	h := &hookOutlet{listener: l, done: make(chan error, 1)}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	go func() { h.done <- h.server.Serve(l) }()
	return h, nil
}

func (h *hookOutlet) name() string { return "webhook" }

func (h *hookOutlet) open(_ context.Context, place string) (map[string]any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.path, h.seen, h.got = "/"+place, map[string]struct{}{}, 0
	return map[string]any{"kind": "webhook", "url": "http://" + h.listener.Addr().String() + h.path}, nil
}

// ofEvent is in every row of an event, once.
var ofEvent = []byte(`"type":"usage.recorded"`)

// ServeHTTP counts the rows of a delivery when it comes for the first time, as receivers that know ids do.
func (h *hookOutlet) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server was stopped in the middle
	}
	rows := bytes.Count(body, ofEvent)
	id := r.Header.Get("webhook-id")
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, again := h.seen[id]; again || r.URL.Path != h.path {
		return
	}
	h.seen[id] = struct{}{}
	h.got += int64(rows)
}

func (h *hookOutlet) rows(context.Context) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got, nil
}

func (h *hookOutlet) close() error {
	err := h.server.Close()
	if served := <-h.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// kafkaOutlet is a topic of Kafka.
type kafkaOutlet struct {
	server *kafkaserver.Server
	end    func() error // of the server, if it was started for this
	client *kgo.Client
	topic  string // that was made last
}

// startKafka uses a server that runs, or starts one.
func startKafka(running *kafkaserver.Server) (_ *kafkaOutlet, err error) {
	k := &kafkaOutlet{server: running, end: func() error { return nil }}
	if running == nil {
		if k.server, err = kafkaserver.Start(); err != nil {
			return nil, err
		}
		k.end = k.server.Stop
	}
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(k.server.Address()), kgo.DisableClientMetrics()); err != nil {
		return nil, errors.Join(err, k.end())
	}
	return k, nil
}

func (k *kafkaOutlet) name() string { return "Kafka" }

func (k *kafkaOutlet) open(ctx context.Context, place string) (map[string]any, error) {
	place = unique(place)
	if err := k.server.CreateTopic(ctx, place, 1); err != nil {
		return nil, err
	}
	k.topic = place
	return map[string]any{"kind": "kafka", "brokers": []string{k.server.Address()}, "topic": place}, nil
}

// rows asks for the end of the topic's only partition. Its producer is idempotent, so that what it sends again by
// itself is there once.
func (k *kafkaOutlet) rows(ctx context.Context) (int64, error) {
	const latest = -1
	of := kmsg.NewListOffsetsRequestTopicPartition()
	of.Timestamp = latest
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = k.topic, []kmsg.ListOffsetsRequestTopicPartition{of}
	ask := kmsg.NewPtrListOffsetsRequest()
	ask.Topics = []kmsg.ListOffsetsRequestTopic{topic}
	answer, err := ask.RequestWith(ctx, k.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
	}
	if kerr.IsRetriable(err) {
		return 0, nil // nobody leads the partition right now, so nobody can say: it is asked again
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the end of the topic: %w", err)
	}
	return answer.Topics[0].Partitions[0].Offset, nil
}

func (k *kafkaOutlet) close() error {
	k.client.Close()
	return k.end()
}

// natsOutlet is JetStream on a server that runs already. Streams that it makes there it removes.
type natsOutlet struct {
	url    string
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream // that was made last
}

// natsWait bounds what is asked of the server.
const natsWait = 10 * time.Second

func connectNATS(url string) (*natsOutlet, error) {
	c, err := nats.Connect(url, nats.Timeout(natsWait))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", url, err)
	}
	js, err := jetstream.New(c, jetstream.WithDefaultTimeout(natsWait))
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &natsOutlet{url: url, conn: c, js: js}, nil
}

func (n *natsOutlet) name() string { return "NATS" }

func (n *natsOutlet) open(ctx context.Context, place string) (_ map[string]any, err error) {
	if err := n.remove(ctx); err != nil {
		return nil, err
	}
	place = unique(place)
	n.stream, err = n.js.CreateStream(ctx, jetstream.StreamConfig{Name: place, Subjects: []string{place}})
	if err != nil {
		return nil, fmt.Errorf("make a stream: %w", err)
	}
	return map[string]any{"kind": "nats", "servers": []string{n.url}, "subject": place}, nil
}

func (n *natsOutlet) remove(ctx context.Context) error {
	if n.stream == nil {
		return nil
	}
	if err := n.js.DeleteStream(ctx, n.stream.CachedInfo().Config.Name); err != nil {
		return fmt.Errorf("remove the stream: %w", err)
	}
	n.stream = nil
	return nil
}

func (n *natsOutlet) rows(ctx context.Context) (int64, error) {
	info, err := n.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask for the stream: %w", err)
	}
	return int64(info.State.Msgs), nil
}

func (n *natsOutlet) close() error {
	defer n.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), natsWait)
	defer cancel()
	return n.remove(ctx)
}
