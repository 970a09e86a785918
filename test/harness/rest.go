package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Header is one header of a message that was read.
type Header struct{ Key, Value string }

// Message is a message that was read back. A nil Key or Value is an absent one.
type Message struct {
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []Header
}

// Answer is what a REST call came back with.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Call makes one REST call. A body that is not empty goes as application/json, unless header says otherwise.
func Call(ctx context.Context, client *http.Client, method, target string, body []byte, header http.Header) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: read the answer: %w", method, target, err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: text}, nil
}

// CreateChannel creates a channel through the broker's REST API. config is JSON, "" for the defaults.
func (s *Suite) CreateChannel(ctx context.Context, client *http.Client, name, config string) error {
	body := fmt.Sprintf(`{"name":%q}`, name)
	if config != "" {
		body = fmt.Sprintf(`{"name":%q,"config":%s}`, name, config)
	}
	answer, err := Call(ctx, client, http.MethodPost, s.URL(BrokerHTTP)+"/v1/channels", []byte(body), nil)
	if err == nil && answer.Status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.Status, answer.Body)
	}
	if err != nil {
		return fmt.Errorf("create channel %s: %w", name, err)
	}
	return nil
}

// Partitions asks the broker how many partitions a topic has.
func (s *Suite) Partitions(ctx context.Context, client *http.Client, topic string) (int32, error) {
	answer, err := Call(ctx, client, http.MethodGet, s.URL(BrokerHTTP)+"/v1/topics/"+url.PathEscape(topic), nil, nil)
	if err == nil && answer.Status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.Status, answer.Body)
	}
	var described struct{ Partitions int32 }
	if err == nil {
		err = json.Unmarshal(answer.Body, &described)
	}
	if err == nil && described.Partitions < 1 {
		err = fmt.Errorf("no partitions in %s", answer.Body)
	}
	if err != nil {
		return 0, fmt.Errorf("get topic %s: %w", topic, err)
	}
	return described.Partitions, nil
}

// Read reads all of a topic through the REST API, partition by partition, each to its high watermark.
func (s *Suite) Read(ctx context.Context, client *http.Client, topic string) ([]Message, error) {
	partitions, err := s.Partitions(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	var all []Message
	for partition := range partitions {
		for next, end := int64(0), int64(1); next < end; {
			page, err := s.readPage(ctx, client, topic, partition, next)
			if err != nil {
				return nil, fmt.Errorf("read topic %s partition %d offset %d: %w", topic, partition, next, err)
			}
			if len(page.messages) == 0 && next < page.highWatermark {
				return nil, fmt.Errorf("read topic %s partition %d: nothing at offset %d below the high watermark %d", topic, partition, next, page.highWatermark)
			}
			all = append(all, page.messages...)
			next, end = page.next, page.highWatermark
		}
	}
	return all, nil
}

// Count is how many messages a topic holds, of which retention has taken none: the sum of its high watermarks.
func (s *Suite) Count(ctx context.Context, client *http.Client, topic string) (int64, error) {
	partitions, err := s.Partitions(ctx, client, topic)
	if err != nil {
		return 0, err
	}
	var sum int64
	for partition := range partitions {
		target := fmt.Sprintf("%s/v1/topics/%s/partitions/%d/messages?offset=latest&limit=1", s.URL(BrokerHTTP), url.PathEscape(topic), partition)
		var body struct {
			HighWatermark int64 `json:",string"`
		}
		answer, err := Call(ctx, client, http.MethodGet, target, nil, nil)
		if err == nil && answer.Status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", answer.Status, answer.Body)
		}
		if err == nil {
			err = json.Unmarshal(answer.Body, &body)
		}
		if err != nil {
			return 0, fmt.Errorf("high watermark of topic %s partition %d: %w", topic, partition, err)
		}
		sum += body.HighWatermark
	}
	return sum, nil
}

type page struct {
	messages            []Message
	next, highWatermark int64
}

func (s *Suite) readPage(ctx context.Context, client *http.Client, topic string, partition int32, offset int64) (page, error) {
	target := fmt.Sprintf("%s/v1/topics/%s/partitions/%d/messages?offset=%d&limit=1000", s.URL(BrokerHTTP), url.PathEscape(topic), partition, offset)
	answer, err := Call(ctx, client, http.MethodGet, target, nil, nil)
	if err != nil {
		return page{}, err
	}
	if answer.Status != http.StatusOK {
		return page{}, fmt.Errorf("status %d: %s", answer.Status, answer.Body)
	}
	var body struct {
		Messages      []storedMessage
		HighWatermark string
	}
	if err := json.Unmarshal(answer.Body, &body); err != nil {
		return page{}, err
	}
	p := page{next: offset}
	if p.highWatermark, err = strconv.ParseInt(body.HighWatermark, 10, 64); err != nil {
		return page{}, fmt.Errorf("highWatermark: %w", err)
	}
	for _, stored := range body.Messages {
		m, err := stored.message(partition)
		if err != nil {
			return page{}, err
		}
		p.messages = append(p.messages, m)
		p.next = m.Offset + 1
	}
	return p, nil
}

// storedMessage is a message in the REST API's words.
type storedMessage struct {
	Offset      string
	Key         *string
	KeyBase64   *string
	Value       json.RawMessage // the payload's very text; "null" is a payload too
	ValueBase64 *string
	Headers     headerObject
}

func (s storedMessage) message(partition int32) (Message, error) {
	m := Message{Partition: partition, Value: s.Value, Headers: s.Headers}
	var err error
	if m.Offset, err = strconv.ParseInt(s.Offset, 10, 64); err != nil {
		return Message{}, fmt.Errorf("offset: %w", err)
	}
	switch {
	case s.Key != nil:
		m.Key = []byte(*s.Key)
	case s.KeyBase64 != nil:
		if m.Key, err = base64.StdEncoding.DecodeString(*s.KeyBase64); err != nil {
			return Message{}, fmt.Errorf("keyBase64: %w", err)
		}
	}
	if s.ValueBase64 != nil {
		if m.Value, err = base64.StdEncoding.DecodeString(*s.ValueBase64); err != nil {
			return Message{}, fmt.Errorf("valueBase64: %w", err)
		}
	}
	return m, nil
}

// headerObject reads a JSON object of strings in the order in which it is written.
type headerObject []Header

// UnmarshalJSON implements json.Unmarshaler.
func (h *headerObject) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return errors.Join(fmt.Errorf("headers are no object: %s", text), err)
	}
	for dec.More() {
		var header Header
		name, err := dec.Token()
		if err != nil {
			return err
		}
		header.Key, _ = name.(string)
		if err := dec.Decode(&header.Value); err != nil {
			return fmt.Errorf("header %s: %w", header.Key, err)
		}
		*h = append(*h, header)
	}
	return nil
}
