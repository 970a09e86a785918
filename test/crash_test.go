package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/databus-suite/databus/test/harness"
)

// crashRounds is how often each kind of end comes; DATABUS_TEST_CRASH_ROUNDS asks for more.
func crashRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("DATABUS_TEST_CRASH_ROUNDS")
	if text == "" {
		return 3
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("DATABUS_TEST_CRASH_ROUNDS=%q: want a number from 1", text)
	}
	return rounds
}

// acksPerRound is how many acknowledgements a round waits for before the suite's end comes.
const acksPerRound = 400

// TestEveryAcknowledgedMessageSurvives ends the suite in the middle of publishing, by SIGKILL and by SIGTERM in turn, and
// starts it again on the same directory. Publishers go on with what was not acknowledged. In the end every acknowledged
// message is where its acknowledgement said, and there once.
func TestEveryAcknowledgedMessageSurvives(t *testing.T) {
	t.Parallel()
	suite := harness.Run(t, binary)
	c := newClients(t, suite)
	c.createChannel(t, "survive", `{"batch":{"linger":"1ms"}}`)

	load := startLoad(t, c, "survive")
	for round := range 2 * crashRounds(t) {
		load.awaitAcks(t, acksPerRound)
		load.gate.shut()
		end, name := suite.Kill, "SIGKILL"
		if round%2 == 1 {
			end, name = suite.Stop, "SIGTERM"
		}
		if err := end(); err != nil {
			t.Fatalf("round %d, %s: %v", round, name, err)
		}
		if err := suite.Start(t.Context()); err != nil {
			t.Fatalf("round %d, start after %s: %v", round, name, err)
		}
		c.http.CloseIdleConnections()
		load.gate.open()
	}
	load.awaitAcks(t, acksPerRound)
	sent := load.finish(t)

	messages, err := suite.Read(t.Context(), c.http, "survive")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages acknowledged, %d in the log, %d ends survived", len(sent), len(messages), 2*crashRounds(t))
	checkSurvival(t, sent, messages)
}

// sentEvent is what a publisher knows of one event.
type sentEvent struct {
	event
	sequence int
	unsure   int // attempts that ended without an answer: each may be in the log
	at       place
}

// checkSurvival compares what publishers know with what the log has.
func checkSurvival(t *testing.T, sent []sentEvent, messages []harness.Message) {
	t.Helper()
	found := make(map[string]int)
	at := make(map[place]string)
	newest := make(map[string]int)
	for _, m := range messages {
		var body struct {
			ID       string
			Sequence int
		}
		if err := json.Unmarshal(m.Value, &body); err != nil {
			t.Fatalf("partition %d offset %d holds %q: %v", m.Partition, m.Offset, m.Value, err)
		}
		found[body.ID]++
		at[place{"survive", m.Partition, m.Offset}] = body.ID
		// A chunk that was sent again may be there twice, as a whole; what is new keeps its order.
		if key := string(m.Key); found[body.ID] == 1 {
			if body.Sequence != newest[key]+1 {
				t.Errorf("key %s: %s at partition %d offset %d comes after sequence %d", key, body.ID, m.Partition, m.Offset, newest[key])
			}
			newest[key] = body.Sequence
		}
	}
	acked := make(map[string]int64)
	for _, e := range sent {
		if _, seen := acked[e.key]; !seen {
			acked[e.key] = -1
		}
		switch {
		case e.at.offset <= acked[e.key]:
			t.Errorf("%s was acknowledged at %v, before an earlier message of its key", e.id, e.at)
		case at[e.at] != e.id:
			t.Errorf("%s was acknowledged at %v, where %q is; it is in the log %d times", e.id, e.at, at[e.at], found[e.id])
		case found[e.id] > 1+e.unsure:
			t.Errorf("%s is in the log %d times after one acknowledgement and %d attempts without an answer", e.id, found[e.id], e.unsure)
		}
		delete(found, e.id)
		acked[e.key] = e.at.offset
	}
	for id := range found {
		t.Errorf("%s is in the log, but no publisher sent it", id)
	}
}

// load is publishers that work until they are told to finish, one key and one intake each.
type load struct {
	gate gate
	acks chan struct{}
	done chan struct{}
	wait sync.WaitGroup

	mu   sync.Mutex
	sent []sentEvent
}

func startLoad(t *testing.T, c *clients, channel string) *load {
	t.Helper()
	l := &load{acks: make(chan struct{}), done: make(chan struct{})}
	l.gate.open()
	for i := range 2 * len(intakes) {
		in := intakes[i%len(intakes)]
		l.wait.Go(func() {
			if err := l.publish(t.Context(), c, channel, in, fmt.Sprintf("%s-%d", in.name, i)); err != nil {
				t.Errorf("publisher %d by %s: %v", i, in.name, err)
			}
		})
	}
	return l
}

// publish sends a key's events one chunk after the other, each until it is acknowledged.
func (l *load) publish(ctx context.Context, c *clients, channel string, in intake, key string) error {
	for sequence := 1; ; {
		var chunk []sentEvent
		for range 1 + sequence%4 {
			id := fmt.Sprintf("%s/%d", key, sequence)
			chunk = append(chunk, sentEvent{sequence: sequence, event: event{
				id: id, key: key, value: fmt.Appendf(nil, `{"id":%q,"sequence":%d}`, id, sequence),
			}})
			sequence++
		}
		if err := l.deliver(ctx, c, channel, in, chunk); err != nil {
			return err
		}
		for range chunk {
			select {
			case l.acks <- struct{}{}:
			case <-l.done:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// deliver publishes one chunk until it is acknowledged. A refusal is an error unless the suite was going away.
func (l *load) deliver(ctx context.Context, c *clients, channel string, in intake, chunk []sentEvent) error {
	events := make([]event, len(chunk))
	for i, e := range chunk {
		events[i] = e.event
	}
	for {
		turn, err := l.gate.pass(ctx)
		if err != nil {
			return err
		}
		places, err := in.publish(ctx, c, channel, events)
		if err == nil && len(places) != len(chunk) {
			return fmt.Errorf("%d results for %d events", len(places), len(chunk))
		}
		if err == nil {
			l.keep(chunk, places)
			return nil
		}
		var refusal *refused
		if l.gate.turn() == turn {
			return fmt.Errorf("refused while the suite was up: %w", err)
		} else if errors.As(err, &refusal) && refusal.status < 500 && refusal.status != 207 && refusal.status != 429 {
			return fmt.Errorf("refused as wrong while the suite went away: %w", err)
		}
		for i := range chunk {
			chunk[i].unsure++
		}
	}
}

func (l *load) keep(chunk []sentEvent, places []place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range chunk {
		e.at = places[i]
		l.sent = append(l.sent, e)
	}
}

func (l *load) awaitAcks(t *testing.T, n int) {
	t.Helper()
	finished := make(chan struct{})
	go func() { l.wait.Wait(); close(finished) }()
	for range n {
		select {
		case <-l.acks:
		case <-finished:
			t.Fatal("every publisher has given up")
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
	}
}

// finish lets each publisher end after its present chunk, and returns what was acknowledged.
func (l *load) finish(t *testing.T) []sentEvent {
	t.Helper()
	close(l.done)
	l.wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return l.sent
}

// gate holds publishers back while the suite is away. A turn ends when the gate is shut. The zero value
// needs one open first.
type gate struct {
	mu    sync.Mutex
	turns int
	way   chan struct{} // closed while the gate is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turns++
	g.way = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.way == nil {
		g.way = make(chan struct{})
	}
	close(g.way)
}

func (g *gate) turn() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turns
}

// pass waits until the gate is open and answers with the turn.
func (g *gate) pass(ctx context.Context) (int, error) {
	g.mu.Lock()
	way, turn := g.way, g.turns
	g.mu.Unlock()
	select {
	case <-way:
		return turn, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
