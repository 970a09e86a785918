package test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/test/harness"
)

// ownEdges are JSON values that naive handling damages. They are here so that the test proves something without the
// shared data too.
var ownEdges = []string{
	`12345678901234567890`, `1.0`, `-0`, `1e400`, `""`, `null`, `true`, `[]`, `{}`, `{"a":1,"a":2}`, `{ "b" : 1,  "a":2 }`,
	`"\ud83d"`, `"\u0000 \/ é 🚀"`, `"<&>\u2028"`, strings.Repeat("[", 500) + strings.Repeat("]", 500),
}

// TestRoundTrip publishes every line of the test data through every intake in every codec, and reads back the same bytes,
// keys, headers and order within each key.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	suite := sharedSuite(t)
	keys := eventsByKey(t)
	for _, in := range intakes {
		for _, codec := range []string{"NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"} {
			if !in.every && codec != "ZSTD" {
				continue
			}
			t.Run(in.name+"/"+codec, func(t *testing.T) {
				t.Parallel()
				roundTrip(t, newClients(t, suite), in, codec, keys)
			})
		}
	}
}

func roundTrip(t *testing.T, c *clients, in intake, codec string, keys map[string][]event) {
	channel := fmt.Sprintf("round-trip.%s.%s", in.name, strings.ToLower(codec))
	c.createChannel(t, channel, fmt.Sprintf(`{"compression":{"codec":%q},"batch":{"linger":"1ms"}}`, codec))

	var publishers errgroup.Group
	publishers.SetLimit(16)
	for key, events := range keys {
		publishers.Go(func() error {
			last := make(map[int32]int64)
			for chunk := range slices.Chunk(events, 7) {
				places, err := in.publish(t.Context(), c, channel, chunk)
				if err != nil {
					return fmt.Errorf("publish key %q: %w", key, err)
				}
				if len(places) != len(chunk) {
					return fmt.Errorf("publish key %q: %d results for %d events", key, len(places), len(chunk))
				}
				for _, p := range places {
					if before, more := last[p.partition]; p.topic != channel || more && before >= p.offset || len(last) > 1 {
						return fmt.Errorf("key %q: offset %d in %s/%d after %v", key, p.offset, p.topic, p.partition, last)
					}
					last[p.partition] = p.offset
				}
			}
			return nil
		})
	}
	if err := publishers.Wait(); err != nil {
		t.Fatal(err)
	}
	rest, err := c.suite.Read(t.Context(), c.http, channel)
	if err != nil {
		t.Fatal(err)
	}
	compareByKey(t, "REST read", keys, rest, in.common)
	compareByKey(t, "gRPC read", keys, c.readGRPC(t, channel), in.common)
	c.checkCodec(t, channel, codec)
}

// eventsByKey makes events of the test data: the webhook's kind is the key, and a header; a second header tells lines apart.
func eventsByKey(t *testing.T) map[string][]event {
	t.Helper()
	var lines []harness.Line
	for i, value := range ownEdges {
		lines = append(lines, harness.Line{File: "own", Number: i + 1, Value: []byte(value)})
	}
	for _, file := range []string{"github-webhooks.jsonl", "json-edges.jsonl"} {
		more, err := harness.Lines(file)
		if errors.Is(err, fs.ErrNotExist) {
			t.Logf("goes on without the lines of %s: %v", file, err)
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, more...)
	}
	keys := make(map[string][]event)
	for _, line := range lines {
		key := line.Event
		if key == "" {
			key = fmt.Sprintf("edge-%d", line.Number%4)
		}
		where := fmt.Sprintf("%s:%d", line.File, line.Number)
		keys[key] = append(keys[key], event{
			id: where, key: key, value: line.Value,
			headers: []harness.Header{{Key: "kind", Value: key}, {Key: "line", Value: where}},
		})
	}
	return keys
}

// compareByKey compares what was read with what was published, key by key and in order. common leaves out the header that
// tells lines apart, which a call that has one set of headers can't carry.
func compareByKey(t *testing.T, how string, want map[string][]event, read []harness.Message, common bool) {
	t.Helper()
	got := make(map[string][]harness.Message)
	for _, m := range read {
		got[string(m.Key)] = append(got[string(m.Key)], m)
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d keys, want %d", how, len(got), len(want))
	}
	for key, events := range want {
		if len(got[key]) != len(events) {
			t.Errorf("%s: key %q has %d messages, want %d", how, key, len(got[key]), len(events))
			continue
		}
		for i, e := range events {
			m := got[key][i]
			if string(m.Value) != string(e.value) {
				t.Errorf("%s: %s came back as %.200q, want %.200q", how, e.id, m.Value, e.value)
			}
			if common {
				m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h harness.Header) bool { return h.Key == "line" })
				e.headers = e.headers[:1]
			}
			if diff := cmp.Diff(e.headers, m.Headers); diff != "" {
				t.Errorf("%s: headers of %s (-want +got):\n%s", how, e.id, diff)
			}
		}
	}
}

// readGRPC reads all of a topic through the generated stubs.
func (c *clients) readGRPC(t *testing.T, topic string) (all []harness.Message) {
	t.Helper()
	partitions, err := c.suite.Partitions(t.Context(), c.http, topic)
	if err != nil {
		t.Fatal(err)
	}
	for partition := range partitions {
		for next, end := int64(0), int64(1); next < end; {
			resp, err := c.read.ReadMessages(t.Context(), &brokerv1.ReadMessagesRequest{
				Topic: topic, Partition: partition, Offset: fmt.Sprint(next), Limit: 100,
			})
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetNextOffset() <= next && next < resp.GetHighWatermark() {
				t.Fatalf("read %s/%d: next offset %d at offset %d below the high watermark %d", topic, partition, resp.GetNextOffset(), next, resp.GetHighWatermark())
			}
			for _, m := range resp.GetMessages() {
				read := harness.Message{Partition: partition, Offset: m.GetOffset(), Key: m.Key, Value: m.Value}
				for _, h := range m.GetHeaders() {
					read.Headers = append(read.Headers, harness.Header{Key: h.GetKey(), Value: string(h.GetValue())})
				}
				all = append(all, read)
			}
			next, end = resp.GetNextOffset(), resp.GetHighWatermark()
		}
	}
	return all
}

// checkCodec fetches a topic's batches as they lie in the log: each is in the channel's codec,
// unless that would have made it larger.
func (c *clients) checkCodec(t *testing.T, topic, codec string) {
	t.Helper()
	partitions, err := c.suite.Partitions(t.Context(), c.http, topic)
	if err != nil {
		t.Fatal(err)
	}
	batches, compressed := 0, 0
	for partition := range partitions {
		resp, err := c.log.Fetch(t.Context(), &brokerv1.FetchRequest{Topic: topic, Partition: partition, MaxBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for rest := resp.GetBatches(); len(rest) > 0; batches++ {
			var batch []byte
			if batch, rest, err = recordbatch.Split(rest); err != nil {
				t.Fatal(err)
			}
			header, err := recordbatch.Check(batch)
			if err != nil {
				t.Fatal(err)
			}
			switch got := strings.ToUpper(header.Codec().String()); got {
			case codec:
				compressed++
			case "NONE": // what would grow is kept as it is
			default:
				t.Errorf("a batch of %s/%d is in codec %s, want %s", topic, partition, got, codec)
			}
		}
	}
	if compressed == 0 {
		t.Errorf("topic %s: none of %d batches is in codec %s", topic, batches, codec)
	}
}
