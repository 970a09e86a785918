package databus

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

// benchConns is how many connections publish at once.
const benchConns = 64

// client is the least that a load generator needs: one connection, one prepared request.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	req  []byte
}

func dial(b *testing.B, addr, path, contentType, body string) *client {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	req := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, contentType, len(body), body)
	return &client{conn: conn, in: bufio.NewReader(conn), req: []byte(req)}
}

// do sends the request and reads the answer.
func (c *client) do() (string, error) {
	if _, err := c.conn.Write(c.req); err != nil {
		return "", err
	}
	status, length := "", 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		switch {
		case status == "":
			status = string(line[9:12])
		case len(line) > 16 && strings.EqualFold(string(line[:16]), "content-length: "):
			length, _ = strconv.Atoi(strings.TrimSpace(string(line[16:])))
		case len(line) == 2:
			_, err := c.in.Discard(length)
			return status, err
		}
	}
}

// load runs b.N requests over all connections.
func load(b *testing.B, addr, path, contentType, body, want string) {
	clients := make([]*client, benchConns)
	for i := range clients {
		clients[i] = dial(b, addr, path, contentType, body)
		if status, err := clients[i].do(); err != nil || status != want {
			b.Fatalf("status %s, want %s: %v", status, want, err)
		}
	}
	tokens := make(chan struct{}, b.N)
	for range b.N {
		tokens <- struct{}{}
	}
	close(tokens)
	done := make(chan error, benchConns)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	b.ResetTimer()
	for _, c := range clients {
		go func() {
			for range tokens {
				if _, err := c.do(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

// oneKilobyte is a JSON payload of about 1 KiB that compresses about as well as events do.
func oneKilobyte() string {
	var s strings.Builder
	s.WriteString(`{"user":{"id":"u-48151623"},"items":[`)
	for i := 0; s.Len() < 1000; i++ {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, `{"sku":"sku-%05d","quantity":%d,"price":%d.%02d}`, i*7919%100000, i%5+1, i*31%500, i*17%100)
	}
	s.WriteString(`]}`)
	return s.String()
}

func benchAgent(b *testing.B, cfg *databusv1.ChannelConfig) *Agent {
	broker := brokertest.Start(b)
	broker.Discard = true
	broker.SetChannel("bench", cfg)
	a, err := New(Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Broker: BrokerConfig{GRPCAddr: broker.Addr()}, DataDir: b.TempDir()},
		Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if err := a.Listen(); err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(b.Context()) }()
	b.Cleanup(func() {
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return a
}

// BenchmarkREST measures single-message publishes against a handler that reads the body and answers.
func BenchmarkREST(b *testing.B) {
	value := oneKilobyte()
	envelope := `{"messages":[{"key":"u-48151623","value":` + value + `}]}`
	b.Run("bare", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintln(w, `{"results":[{"topic":"bench","partition":0,"offset":"1","timestamp":"2026-01-01T00:00:00.000Z"}]}`)
		})}
		go func() { _ = s.Serve(l) }()
		b.Cleanup(func() { s.Close() })
		load(b, l.Addr().String(), "/", "application/json", envelope, "200")
	})
	adaptive := &databusv1.ChannelConfig{Batch: &databusv1.Batch{Adaptive: true}}
	for _, tc := range []struct {
		name, path, body string
		cfg              *databusv1.ChannelConfig
	}{
		{"messages", "messages", envelope, adaptive},
		{"events", "events", value, adaptive},
		{"spooled", "messages", envelope, &databusv1.ChannelConfig{Batch: adaptive.Batch, Durability: databusv1.Durability_DURABILITY_SPOOLED}},
		{"keypath", "events", value, &databusv1.ChannelConfig{KeyPath: "$.user.id", Batch: adaptive.Batch}},
		{"nocodec", "messages", envelope, &databusv1.ChannelConfig{Batch: adaptive.Batch,
			Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_NONE}}},
		{"linger0", "messages", envelope, &databusv1.ChannelConfig{Batch: &databusv1.Batch{Linger: durationpb.New(0)}}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			a := benchAgent(b, tc.cfg)
			load(b, a.HTTPAddr(), "/v1/channels/bench/"+tc.path, "application/json", tc.body, "200")
		})
	}
}

// BenchmarkNDJSON measures bodies of many lines; the messages/s are what compares.
func BenchmarkNDJSON(b *testing.B) {
	const lines = 100
	body := strings.Repeat(oneKilobyte()+"\n", lines)
	a := benchAgent(b, &databusv1.ChannelConfig{KeyPath: "$.user.id", Batch: &databusv1.Batch{Adaptive: true}})
	load(b, a.HTTPAddr(), "/v1/channels/bench/events", "application/x-ndjson", body, "200")
	b.ReportMetric(float64(b.N*lines)/b.Elapsed().Seconds(), "msg/s")
}
