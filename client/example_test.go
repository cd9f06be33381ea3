package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tallystick/tallystick/client"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			io.WriteString(w, `{"id":"req_8f2","status":"accepted","seq":881}`)
			return
		}
		io.WriteString(w, `{"items":[{"meter":"api_calls","customer":"cus_42","period":"2026-11","total":"3"}],`+
			`"next_cursor":null}`)
	}))
	defer server.Close()

	ctx := context.Background()
	c, err := client.New(server.URL, "tk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()

	answer, err := c.SendEvent(ctx, &client.Event{
		ID: "req_8f2", Meter: "api_calls", Customer: "cus_42", Quantity: "3",
		Time: time.Date(2026, 11, 15, 2, 10, 0, 0, time.UTC),
	})
	var problem *client.Problem
	switch {
	case errors.As(err, &problem) && problem.QuotaExceeded:
		fmt.Println("quota spent; more in", problem.RetryAfter)
		return
	case err != nil:
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Status, answer.Seq)

	for counter, err := range c.AllCounters(ctx, client.CounterFilter{Meter: "api_calls", Period: "2026-11"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(counter.Customer, counter.Total)
	}
	// Output:
	// accepted 881
	// cus_42 3
}

func ExampleBatcher() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"accepted":1,"duplicates":1,"results":[{"index":1,"id":"req_1","status":"duplicate",`+
			`"seq":5}]}`)
	}))
	defer server.Close()

	ctx := context.Background()
	c, err := client.New(server.URL, "tk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()
	batcher, err := c.NewBatcher(client.BatcherConfig{
		Interval: time.Minute,
		OnOutcome: func(o client.Outcome) {
			if o.Err != nil {
				fmt.Println("not acknowledged:", o.Event.ID, o.Err)
				return
			}
			fmt.Println(o.Event.ID, o.Verdict.Status)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"req_2", "req_1"} {
		if err := batcher.Add(ctx, client.Event{ID: id, Meter: "api_calls", Customer: "cus_42"}); err != nil {
			fmt.Println(err)
		}
	}
	if err := batcher.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// req_2 accepted
	// req_1 duplicate
}
