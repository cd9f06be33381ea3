// Package redis shares rate limits between nodes through a Redis server.
//
// Redis is never an authority: it holds nothing but buckets, which may be lost at any time. A node that cannot reach it
// says so and decides by itself.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tallystick/tallystick/internal/service/limit"
)

// Bounds of waiting for the server, where its URL names none: a limit is not worth a slow answer.
const (
	dialTimeout = 250 * time.Millisecond
	callTimeout = 100 * time.Millisecond
	// pause is how long a server that did not answer is left alone, so that requests do not wait for it one after the
	// other.
	pause = time.Second
)

const prefix = "tallystick:limit:"

// take is limit's taking on the server, by the server's own clock: the nodes' clocks may differ. ARGV is the cost in
// three dimensions, then the rate of each bucket in three. It returns the wait in microseconds, which bucket and which
// dimension is waited for, and the limit, remainder and reset of the standing. Numbers travel as text, because a Lua
// number loses its fraction on the way. What sums of fractions lose is forgiven, as in limit.
var take = goredis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local wait, by, of = 0, 0, 0
local left = {}
for b = 1, #KEYS do
	local had = redis.call('HMGET', KEYS[b], 'at', '1', '2', '3')
	local since = math.max(0, now - (tonumber(had[1]) or now)) / 1000000
	left[b] = {}
	for d = 1, 3 do
		local rate, cost = tonumber(ARGV[3 * b + d]), tonumber(ARGV[d])
		left[b][d] = math.min(rate, (tonumber(had[d + 1]) or rate) + since * rate)
		local need = math.min(cost, rate)
		if rate > 0 and cost > 0 and left[b][d] + 0.000001 + rate / 1000000000000 < need then
			local lacks = (need - left[b][d]) / rate
			if lacks > wait then wait, by, of = lacks, b, d end
		end
	end
end
local least, standing = 2, {0, 0, 0}
for b = 1, #KEYS do
	local full = 0
	for d = 1, 3 do
		local rate = tonumber(ARGV[3 * b + d])
		if rate > 0 then
			if wait == 0 then left[b][d] = left[b][d] - tonumber(ARGV[d]) end
			local share = left[b][d] / rate
			full = math.max(full, 1 - share)
			if share < least then least, standing = share, {rate, math.max(0, math.floor(left[b][d])), 1 - share} end
		end
	end
	redis.call('HSET', KEYS[b], 'at', string.format('%.0f', now), '1', string.format('%.6f', left[b][1]),
		'2', string.format('%.6f', left[b][2]), '3', string.format('%.6f', left[b][3]))
	redis.call('PEXPIRE', KEYS[b], math.ceil(full * 1000) + 1000)
end
local function text(n) return string.format('%.0f', n) end
return {text(math.ceil(wait * 1000000)), text(by), text(of),
	text(standing[1]), text(standing[2]), text(math.ceil(standing[3] * 1000000))}
`)

// ErrAway is returned while the server is left alone after it did not answer.
var ErrAway = errors.New("redis did not answer a moment ago")

// Limits are buckets on a Redis server. They are safe for concurrent use.
type Limits struct {
	client *goredis.Client
	away   atomic.Int64 // until then, in nanoseconds
}

var _ limit.Shared = (*Limits)(nil)

// Open makes Limits of redis://user:password@host:port/database, which may end in ?read_timeout=200ms and the like. It
// does not connect yet: the server may come later.
func Open(url string) (*Limits, error) {
	o, err := goredis.ParseURL(url)
	if err != nil {
		// The cause may quote a password.
		return nil, errors.New("not the URL of a Redis server, redis://host:port/database")
	}
	for _, t := range []struct {
		of    *time.Duration
		bound time.Duration
	}{{&o.DialTimeout, dialTimeout}, {&o.ReadTimeout, callTimeout}, {&o.WriteTimeout, callTimeout},
		{&o.PoolTimeout, callTimeout}} {
		if *t.of == 0 {
			*t.of = t.bound
		}
	}
	o.MaxRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, true, true
	return &Limits{client: goredis.NewClient(o)}, nil
}

// Close releases the connections.
func (l *Limits) Close() error { return l.client.Close() }

// Take implements limit.Shared.
func (l *Limits) Take(ctx context.Context, c limit.Cost, from []limit.Bucket) (limit.Outcome, error) {
	if time.Now().UnixNano() < l.away.Load() {
		return limit.Outcome{}, ErrAway
	}
	keys := make([]string, len(from))
	args := make([]any, 0, 3+3*len(from))
	args = append(args, c.Requests, c.Events, c.Bytes)
	for i, b := range from {
		keys[i] = prefix + string(b.By) + ":" + b.Name
		args = append(args, b.Rate.Requests, b.Rate.Events, b.Rate.Bytes)
	}
	texts, err := take.Run(ctx, l.client, keys, args...).StringSlice()
	if err != nil {
		if ctx.Err() == nil {
			l.away.Store(time.Now().Add(pause).UnixNano())
		}
		return limit.Outcome{}, fmt.Errorf("take from shared limits: %w", err)
	}
	o, err := outcome(texts, from)
	if err != nil {
		return limit.Outcome{}, fmt.Errorf("take from shared limits: %w", err)
	}
	return o, nil
}

// outcome reads what the script returned.
func outcome(texts []string, from []limit.Bucket) (o limit.Outcome, err error) {
	var n [6]int64
	if len(texts) != len(n) {
		return o, fmt.Errorf("%d numbers came back", len(texts))
	}
	for i, text := range texts {
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return o, err
		}
	}
	o.Standing = limit.Standing{Limit: n[3], Remaining: n[4], Reset: time.Duration(n[5]) * time.Microsecond}
	if n[0] == 0 {
		return o, nil
	}
	if n[1] < 1 || n[1] > int64(len(from)) || n[2] < 1 || n[2] > 3 {
		return o, fmt.Errorf("bucket %d, dimension %d came back", n[1], n[2])
	}
	o.Wait, o.By, o.Of = time.Duration(n[0])*time.Microsecond, from[n[1]-1].By, limit.Dimension(n[2]-1)
	return o, nil
}
