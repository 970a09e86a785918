package wirejson

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	indexv1 "github.com/databus-suite/databus/gen/go/databus/index/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

func orders() *databusv1.CreateChannelRequest {
	return &databusv1.CreateChannelRequest{Name: "orders", Config: &databusv1.ChannelConfig{
		Routes:      []*databusv1.Route{{Topic: "orders"}},
		KeyPath:     "$.user.id",
		Batch:       &databusv1.Batch{Linger: durationpb.New(5 * time.Millisecond)},
		Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_ZSTD},
		Durability:  databusv1.Durability_DURABILITY_DURABLE,
	}}
}

// TestChannelConfig reads the config as the guide has it, in each of the forms that are taken.
func TestChannelConfig(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"guide": `{"name":"orders","config":{"routes":[{"topic":"orders"}],"keyPath":"$.user.id","batch":{"linger":"5ms"},` +
			`"compression":{"codec":"ZSTD"},"durability":"DURABLE"}}`,
		"protojson": `{"name":"orders","config":{"routes":[{"topic":"orders"}],"keyPath":"$.user.id","batch":{"linger":"0.005s"},` +
			`"compression":{"codec":"CODEC_ZSTD"},"durability":3}}`,
		"snake case, nulls and space": "\n{ \"name\" : \"orders\" , \"config\" : {\"key_path\":\"$.user.id\", \"paused\": null, \"spool\":null,\n" +
			`"routes":[{"topic":"\u006frders"}],"batch":{"linger":"0.005s","max_bytes":0e0},"compression":{"codec":"ZSTD"},"durability":"3"}}`,
	} {
		var got databusv1.CreateChannelRequest
		if err := Unmarshal([]byte(doc), &got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(orders(), &got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	out, err := Append(nil, orders())
	want := `{"name":"orders","config":{"routes":[{"topic":"orders"}],"keyPath":"$.user.id","batch":{"linger":"0.005s"},` +
		`"compression":{"codec":"ZSTD"},"durability":"DURABLE"}}`
	if string(out) != want || err != nil {
		t.Errorf("wrote %s (%v)", out, err)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ doc, place, field, says string }{
		{`{"name":"a","confg":{}}`, "line 1, column 13", "confg", "did you mean config?"},
		{"{\"name\":\"a\",\n\"config\":{\"batch\":{\n  \"lingr\":\"5ms\"}}}", "line 3, column 3", "config.batch.lingr", "did you mean linger?"},
		{`{"config":{"batch":{"linger":5}}}`, "line 1, column 30", "config.batch.linger", `such as "5ms", is a number`},
		{`{"config":{"batch":{"linger":"5"}}}`, "line 1, column 30", "config.batch.linger", `"5" is no duration`},
		{`{"config":{"batch":{"maxBytes":"x"}}}`, "line 1, column 32", "config.batch.maxBytes", "not an integer of 32 bits"},
		{`{"config":{"batch":{"maxBytes":1.5}}}`, "line 1, column 32", "config.batch.maxBytes", "not an integer"},
		{`{"config":{"batch":{"maxBytes":3000000000}}}`, "line 1, column 32", "config.batch.maxBytes", "32 bits"},
		{`{"config":{"compression":{"codec":"zstd"}}}`, "line 1, column 35", "config.compression.codec", "did you mean ZSTD?"},
		{`{"config":{"compression":{"codec":"BROTLI"}}}`, "line 1, column 35", "config.compression.codec", "one of NONE, GZIP, SNAPPY, LZ4, ZSTD"},
		{`{"config":{"compression":{"codec":[]}}}`, "line 1, column 35", "config.compression.codec", "must be one of NONE"},
		{`{"config":{"routes":[{"topic":"a"},{"topik":"b"}]}}`, "line 1, column 37", "config.routes[1].topik", "did you mean topic?"},
		{`{"config":{"routes":[null]}}`, "line 1, column 22", "config.routes[0]", "must be an object, is null"},
		{`{"config":{"routes":{}}}`, "line 1, column 21", "config.routes", "must be an array, is an object"},
		{`{"config":{"paused":"true"}}`, "line 1, column 21", "config.paused", "must be true or false, is a string"},
		{`{"config":{"paused":true,"paused":true}}`, "line 1, column 26", "config.paused", "given twice"},
		{`{"config":{"keyPath":"a","key_path":"b"}}`, "line 1, column 26", "config.key_path", "given twice"},
		{`{"config":[]}`, "line 1, column 11", "config", "must be an object, is an array"},
		{`{"name":1}`, "line 1, column 9", "name", "must be a string, is a number"},
		{`{"name":"a"`, "line 1, column 12", "", "ends"},
		{`{"name":"a"} {}`, "line 1, column 14", "", "nothing more"},
		{``, "line 1, column 1", "", "ends"},
		{`[]`, "line 1, column 1", "", "must be an object"},
	} {
		e := errs.From(Unmarshal([]byte(c.doc), &databusv1.CreateChannelRequest{}))
		if e == nil {
			t.Errorf("%s passes", c.doc)
			continue
		}
		if e.Code != errs.Invalid || !strings.HasPrefix(e.Message, c.place+": ") || e.Field != c.field || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: field %q, %q; want field %q, %s … %s", c.doc, e.Field, e.Message, c.field, c.place, c.says)
		}
	}
}

func TestLenientSkipsWhatIsNew(t *testing.T) {
	t.Parallel()
	doc := `{"messages":[{"offset":"1","new":[1],"value":{},"headers":{"a":"2"},"headerList":[{"key":"a","value":"1","new":1},{"key":"a","value":"2"}]}],"more":{}}`
	var got brokerv1.ReadMessagesResponse
	if err := UnmarshalLenient([]byte(doc), &got); err != nil {
		t.Fatal(err)
	}
	want := &brokerv1.ReadMessagesResponse{Messages: []*databusv1.StoredMessage{{Offset: 1, Value: []byte("{}"),
		Headers: []*databusv1.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}}}}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if err := Unmarshal([]byte(doc), &got); err == nil {
		t.Error("the strict reader takes it")
	}
}

// all is one message of each kind of mapping.
func all(t testing.TB) map[string]proto.Message {
	t.Helper()
	fields, err := structpb.NewStruct(map[string]any{"id": 42.0, "b": nil, "a": []any{"x", true}})
	if err != nil {
		t.Fatal(err)
	}
	detail, err := anypb.New(durationpb.New(1500 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	moment := timestamppb.New(time.UnixMilli(1767323045670))
	return map[string]proto.Message{
		`{"topic":{"name":"orders","partitions":0,"partitionOffsets":[{"partition":0,"logStartOffset":"0","highWatermark":"7","sizeBytes":"0","leaderEpoch":0}],` +
			`"config":{"retention":"0s"}}}`: &brokerv1.GetTopicResponse{Topic: &brokerv1.Topic{Name: "orders", Config: &brokerv1.TopicConfig{Retention: durationpb.New(0)},
			PartitionOffsets: []*brokerv1.PartitionOffsets{{HighWatermark: 7}}}},
		`{"messages":[],"highWatermark":"0","logStartOffset":"0","nextOffset":"0"}`: &brokerv1.ReadMessagesResponse{},
		`{"messages":[{"offset":"9","timestamp":"2026-01-02T03:04:05.670Z","key":"k","value":{ "a":1e400}}],"highWatermark":"10","logStartOffset":"0","nextOffset":"10"}`: &brokerv1.ReadMessagesResponse{
			Messages:      []*databusv1.StoredMessage{{Offset: 9, Timestamp: moment, Key: []byte("k"), Value: []byte(`{ "a":1e400}`)}},
			HighWatermark: 10, NextOffset: 10},
		`{"channel":"c","updateMask":"batch.maxBytes,keyPath","canaryLabels":{"a":"1","b":"2"}}`: &databusv1.UpdateChannelRequest{Channel: "c",
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"batch.max_bytes", "key_path"}}, CanaryLabels: map[string]string{"b": "2", "a": "1"}},
		`{"rows":[{"topic":"t","partition":0,"offset":"3","fields":{"a":["x",true],"b":null,"id":42},"message":{"offset":"3"}}],"indexedThrough":[]}`: &indexv1.QueryIndexResponse{
			Rows: []*indexv1.IndexRow{{Topic: "t", Offset: 3, Fields: fields, Message: &databusv1.StoredMessage{Offset: 3}}}},
		`{"results":[{"topic":"t","partition":0,"offset":"0","timestamp":"2026-01-02T03:04:05.670Z"},` +
			`{"error":{"code":3,"message":"no","details":[{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}]}}]}`: &databusv1.PublishResponse{
			Results: []*databusv1.PublishResult{{Topic: "t", Partition: new(int32(0)), Offset: new(int64(0)), Timestamp: moment},
				{Error: &rpcstatus.Status{Code: 3, Message: "no", Details: []*anypb.Any{detail}}}}},
		`{"channel":"c","key":"","headers":{"a":"1"}}`: &databusv1.PublishEventsRequest{Channel: "c", Key: new(""), Headers: []*databusv1.Header{{Key: "a", Value: []byte("1")}}},
		`{"channel":"c","headerList":[{"key":"a"}]}`:   &databusv1.PublishEventsRequest{Channel: "c", Headers: []*databusv1.Header{{Key: "a"}}},
		`{"synced":false}`:                             &databusv1.WatchChannelsResponse{Event: &databusv1.WatchChannelsResponse_Synced{}},
		`{"channel":"c","messages":[{"key":"k","value":1,"id":"i","timestamp":"2026-01-02T03:04:05.670Z","partition":0},{}]}`: &databusv1.PublishRequest{Channel: "c",
			Messages: []*databusv1.Message{{Key: []byte("k"), Value: []byte("1"), Id: "i", Timestamp: moment, Partition: new(int32(0))}, {}}},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for want, m := range all(t) {
		got, err := Append(nil, m)
		if err != nil || !sameJSON(t, string(got), want) {
			t.Errorf("%T:\n got %s (%v)\nwant %s", m, got, err, want)
			continue
		}
		back := m.ProtoReflect().New().Interface()
		if err := Unmarshal(got, back); err != nil {
			t.Errorf("%s: %v", got, err)
			continue
		}
		if diff := cmp.Diff(m, back, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", got, diff)
		}
	}
}

// sameJSON compares text, except for the order of fields, which the tests need not know.
func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	if strings.Contains(got, "1e400") {
		return got == want
	}
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil {
		return false
	}
	return cmp.Equal(g, w) && len(got) == len(want)
}

// TestProtojsonReadsIt: other than for messages, a protojson client understands every answer, once enums are in their long form.
func TestProtojsonReadsIt(t *testing.T) {
	t.Parallel()
	m := &databusv1.GetChannelStatusResponse{Revision: 3, Agents: []*databusv1.AgentChannelStatus{{
		Agent: &databusv1.AgentInfo{AgentId: "a\u2028\"", Labels: map[string]string{"x": "y"}}, Report: &databusv1.ChannelReport{Accepted: 1 << 60}}}}
	out, err := Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	var back databusv1.GetChannelStatusResponse
	if err := protojson.Unmarshal(out, &back); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if diff := cmp.Diff(m, &back, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for in, out := range map[string]string{
		"5ms": "0.005s", "0.005s": "0.005s", "1h30m": "5400s", "0s": "0s", "-1.5s": "-1.500s", "-0.5s": "-0.500s", "1ns": "0.000000001s", "1us": "0.000001s",
		"315576000000s": "315576000000s", "10000000000.5s": "10000000000.500s", "-10000000000.5s": "-10000000000.500s",
	} {
		var r databusv1.ReportAgentResponse
		if err := Unmarshal([]byte(`{"nextReportAfter":"`+in+`"}`), &r); err != nil {
			t.Error(err)
			continue
		}
		if got, _ := Append(nil, &r); string(got) != `{"nextReportAfter":"`+out+`"}` {
			t.Errorf("%s became %s, want %s", in, got, out)
		}
	}
	for _, in := range []string{"", "5", "s", "ms", "315576000001s", "9999999999999999999s", "10000000000.-5s", "1e3s", " 5s"} {
		if err := Unmarshal([]byte(`{"nextReportAfter":"`+in+`"}`), &databusv1.ReportAgentResponse{}); err == nil {
			t.Errorf("%q passes", in)
		}
	}
}

func TestIntegers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0", "-0": "-0", "1e3": "1000", "1.0": "1", "12.50e1": "125", "1000e-3": "1", "0e5": "0", "0.0": "0", "-1.0": "-1", "00": "", "1.5": "", "1e-1": "",
		"": "", "-": "", "+1": "", "0x1": "", "1e99999999999": "", "1e2000": "", " 1": "", "1 ": "", "0.001e3": "1", "10e-3": "",
	} {
		got, ok := wholeNumber(in)
		if got != want || ok != (want != "") {
			t.Errorf("%q: got %q %v, want %q", in, got, ok, want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for doc := range all(f) {
		f.Add([]byte(doc))
	}
	f.Add([]byte(`{"name":"orders","config":{"key_path":"$.a","batch":{"linger":"5ms"},"compression":{"codec":"ZSTD","level":1e0}}}`))
	targets := []proto.Message{&databusv1.CreateChannelRequest{}, &databusv1.UpdateChannelRequest{}, &indexv1.QueryIndexResponse{}, &databusv1.PublishEventsRequest{},
		&databusv1.PublishResponse{}, &brokerv1.ReadMessagesResponse{}, &brokerv1.GetTopicResponse{}, &databusv1.WatchChannelsResponse{}, &brokerv1.ListOffsetsRequest{}}
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, target := range targets {
			m := target.ProtoReflect().New().Interface()
			if err := Unmarshal(doc, m); err != nil {
				if errs.From(err).Code != errs.Invalid {
					t.Fatalf("%q: %v", doc, err)
				}
				continue
			}
			if !json.Valid(doc) {
				t.Fatalf("%q is taken and is no JSON", doc)
			}
			out, err := Append(nil, m)
			if err != nil || !json.Valid(out) {
				t.Fatalf("%q became %q: %v", doc, out, err)
			}
			again := m.ProtoReflect().New().Interface()
			if err := UnmarshalLenient(out, again); err != nil {
				t.Fatalf("%q became %q: %v", doc, out, err)
			}
			if !proto.Equal(m, again) {
				t.Fatalf("%q became %q, which is another message", doc, out)
			}
		}
	})
}
