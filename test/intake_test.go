package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/status"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/test/harness"
)

// event is a message that a test publishes.
type event struct {
	id      string
	key     string
	value   []byte
	headers []harness.Header
}

// place is where a published event is.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// intake is one way to hand events in. publish takes events of one key and answers with their places in order; an error
// says that some of them may not be in the log.
type intake struct {
	name    string
	publish func(ctx context.Context, c *clients, channel string, events []event) ([]place, error)
	// common: headers are those of the whole call, so only headers that all events of the call share can be given.
	common bool
	// every: goes through the codec × intake matrix. The others are further faces of the same path: one codec is enough.
	every bool
}

var intakes = []intake{
	{name: "rest", publish: publishEnvelope, every: true},
	{name: "raw", publish: publishRaw, every: true},
	{name: "ndjson", publish: publishNDJSON, every: true, common: true},
	{name: "grpc", publish: publishGRPC, every: true},
	{name: "connect", publish: publishConnect, every: true},
	{name: "connect-json", publish: publishConnectJSON},
	{name: "grpc-web", publish: publishGRPCWeb},
	{name: "grpc-stream", publish: publishStream},
	{name: "rest-bulk", publish: publishBulk},
}

// refused is an answer that says why events are not in the log.
type refused struct {
	status int
	body   string
}

func (r *refused) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.body) }

func publishEnvelope(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	body := envelope(nil, events)
	return c.post(ctx, "/v1/channels/"+channel+"/messages", append(body, '}'), nil)
}

// envelope writes the JSON API's messages by hand: json.Marshal would rewrite the payloads. The object is left open.
func envelope(body []byte, events []event) []byte {
	body = append(body, `{"messages":[`...)
	for i, e := range events {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"id":`...)
		body = appendString(body, e.id)
		body = append(body, `,"key":`...)
		body = appendString(body, e.key)
		body = append(body, `,"value":`...)
		body = append(body, e.value...)
		body = append(body, `,"headers":{`...)
		for j, h := range e.headers {
			if j > 0 {
				body = append(body, ',')
			}
			body = append(appendString(body, h.Key), ':')
			body = appendString(body, h.Value)
		}
		body = append(body, "}}"...)
	}
	return append(body, ']')
}

func appendString(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always marshals
	}
	return append(dst, text...)
}

func publishRaw(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	var places []place
	for _, e := range events {
		header := eventHeader(e)
		header.Set("Content-Type", "application/json")
		header.Set("Databus-Id", e.id)
		one, err := c.post(ctx, "/v1/channels/"+channel+"/events", e.value, header)
		if err != nil {
			return places, err
		}
		places = append(places, one...)
	}
	return places, nil
}

func publishNDJSON(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	header := eventHeader(events[0])
	header.Set("Content-Type", "application/x-ndjson")
	var body []byte
	for _, e := range events {
		body = append(append(body, e.value...), '\n')
	}
	return c.post(ctx, "/v1/channels/"+channel+"/events", body, header)
}

func eventHeader(e event) http.Header {
	header := http.Header{"Databus-Key": {e.key}}
	for _, h := range e.headers {
		header.Set("Databus-Header-"+h.Key, h.Value)
	}
	return header
}

func publishConnectJSON(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	body := envelope(nil, events)
	body = append(body, `,"channel":`...)
	body = appendString(body, channel)
	return c.post(ctx, "/databus.v1.PublishService/Publish", append(body, '}'), http.Header{"Connect-Protocol-Version": {"1"}})
}

func publishBulk(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	body := envelope([]byte(`{"requests":[`), events)
	body = append(body, `,"channel":`...)
	body = appendString(body, channel)
	answer, err := c.agent(ctx, "/v1/messages:bulk", append(body, "}]}"...), nil)
	if err != nil {
		return nil, err
	}
	var bulk struct{ Responses []json.RawMessage }
	if err := json.Unmarshal(answer, &bulk); err != nil || len(bulk.Responses) != 1 {
		return nil, fmt.Errorf("bulk answer %s: %w", answer, err)
	}
	return jsonPlaces(bulk.Responses[0])
}

// post calls the agent's REST API and reads the places from its answer.
func (c *clients) post(ctx context.Context, path string, body []byte, header http.Header) ([]place, error) {
	answer, err := c.agent(ctx, path, body, header)
	if err != nil {
		return nil, err
	}
	return jsonPlaces(answer)
}

func (c *clients) agent(ctx context.Context, path string, body []byte, header http.Header) ([]byte, error) {
	answer, err := harness.Call(ctx, c.http, http.MethodPost, c.suite.URL(harness.AgentHTTP)+path, body, header)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, &refused{status: answer.Status, body: string(answer.Body)}
	}
	return answer.Body, nil
}

// jsonPlaces reads {"results":[{"topic","partition","offset"}]}.
func jsonPlaces(text []byte) ([]place, error) {
	var answer struct {
		Results []struct {
			Topic     string
			Partition *int32
			Offset    *string
			Error     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("answer %s: %w", text, err)
	}
	places := make([]place, 0, len(answer.Results))
	for _, r := range answer.Results {
		if r.Error != nil || r.Partition == nil || r.Offset == nil {
			return nil, fmt.Errorf("a result has no place: %s", text)
		}
		offset, err := strconv.ParseInt(*r.Offset, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("offset in %s: %w", text, err)
		}
		places = append(places, place{r.Topic, *r.Partition, offset})
	}
	return places, nil
}

func publishGRPC(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	resp, err := c.grpc.Publish(ctx, &databusv1.PublishRequest{Channel: channel, Messages: protoMessages(events)})
	if err != nil {
		return nil, err
	}
	return protoPlaces(resp.GetResults(), nil)
}

func publishConnect(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	resp, err := c.connect.Publish(ctx, &databusv1.PublishRequest{Channel: channel, Messages: protoMessages(events)})
	if err != nil {
		return nil, err
	}
	return protoPlaces(resp.GetResults(), nil)
}

func publishGRPCWeb(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	resp, err := c.grpcWeb.Publish(ctx, &databusv1.PublishRequest{Channel: channel, Messages: protoMessages(events)})
	if err != nil {
		return nil, err
	}
	return protoPlaces(resp.GetResults(), nil)
}

// publishStream sends every event as a request of its own without waiting for answers, which may come in any order.
func publishStream(ctx context.Context, c *clients, channel string, events []event) ([]place, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.grpc.PublishStream(ctx)
	if err != nil {
		return nil, err
	}
	for i, m := range protoMessages(events) {
		request := &databusv1.PublishStreamRequest{Sequence: int64(i), Messages: []*databusv1.Message{m}}
		if i == 0 {
			request.Channel = channel
		}
		if err := stream.Send(request); err != nil {
			_, recv := stream.Recv() // holds the stream's own error; Send says only that it ended
			return nil, errors.Join(err, recv)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	places := make([]place, len(events))
	seen := make([]bool, len(events))
	for range events {
		resp, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		one, err := protoPlaces(resp.GetResults(), resp.GetError())
		if err != nil {
			return nil, err
		}
		n := resp.GetSequence()
		if n < 0 || n >= int64(len(events)) || seen[n] || len(one) != 1 {
			return nil, fmt.Errorf("stream answered sequence %d with %d results: not asked for, or answered before", n, len(one))
		}
		places[n], seen[n] = one[0], true
	}
	return places, nil
}

func protoMessages(events []event) []*databusv1.Message {
	messages := make([]*databusv1.Message, 0, len(events))
	for _, e := range events {
		m := &databusv1.Message{Id: e.id, Key: []byte(e.key), Value: bytes.Clone(e.value)}
		for _, h := range e.headers {
			m.Headers = append(m.Headers, &databusv1.Header{Key: h.Key, Value: []byte(h.Value)})
		}
		messages = append(messages, m)
	}
	return messages
}

func protoPlaces(results []*databusv1.PublishResult, whole *status.Status) ([]place, error) {
	if whole != nil {
		return nil, fmt.Errorf("refused: %s", whole.GetMessage())
	}
	places := make([]place, 0, len(results))
	for _, r := range results {
		if r.GetError() != nil || r.Partition == nil || r.Offset == nil {
			return nil, fmt.Errorf("a result has no place: %v", r)
		}
		places = append(places, place{r.GetTopic(), r.GetPartition(), r.GetOffset()})
	}
	return places, nil
}
