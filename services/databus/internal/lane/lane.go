// Package lane owns what a lane is: its name, where a message carries it, and how many of them may have topics. Lanes let many
// test runs share one channel. The package knows headers and names; it may not know channels, batches or the broker.
package lane

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
)

const (
	// Header carries a message's lane, as a record header and as an HTTP header.
	Header = "databus-lane"
	// baggage is the W3C header of which a member may carry it.
	baggage = "baggage"
	// infix stands between a topic and a lane in the name of the lane's own topic.
	infix    = ".lane."
	maxName  = 64
	maxTopic = 249
)

var (
	// ErrName means a lane that can not be part of a topic's name.
	ErrName = errors.New("not a lane's name")
	// ErrTooMany means that the channel's lanes have as many topics as they may.
	ErrTooMany = errors.New("too many lanes have topics")
)

// Of is the lane that headers carry, or "". inBaggage says that they do so only in their baggage.
func Of(headers []recordbatch.RecordHeader) (name string, inBaggage bool) {
	for i := range headers {
		switch headers[i].Key {
		case Header:
			return string(headers[i].Value), false
		case baggage:
			if v := member(string(headers[i].Value)); v != "" {
				name, inBaggage = v, true
			}
		}
	}
	return name, inBaggage
}

// member is the value of the lane's member of a W3C baggage list.
func member(list string) string {
	for len(list) > 0 {
		var m string
		m, list, _ = strings.Cut(list, ",")
		m, _, _ = strings.Cut(m, ";") // properties
		k, v, ok := strings.Cut(m, "=")
		if !ok || strings.TrimSpace(k) != Header {
			continue
		}
		v = strings.TrimSpace(v)
		if plain, err := url.PathUnescape(v); err == nil {
			return plain
		}
		return v
	}
	return ""
}

// Check says whether a lane has a valid name: 1 to 64 of letters, digits, '_' and '-'. The error wraps ErrName.
func Check(name string) error {
	ok := len(name) >= 1 && len(name) <= maxName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		return fmt.Errorf("lane %.80q: %w", name, ErrName)
	}
	return nil
}

// Topic is the name of a lane's own topic. The error wraps ErrName.
func Topic(topic, name string) (string, error) {
	if err := Check(name); err != nil {
		return "", err
	}
	full := topic + infix + name
	if len(full) > maxTopic {
		return "", fmt.Errorf("topic %s of lane %q is longer than %d characters: %w", topic, name, maxTopic, ErrName)
	}
	return full, nil
}

// Set is the topics of one channel's lanes that are in use. Its methods may run concurrently; the zero value is empty.
type Set struct {
	mu   sync.Mutex
	used map[string]time.Time
}

// Use notes that a topic is written to. Where it would be the limit's next, those that have been idle for so long that the broker
// deletes them go first, if forget agrees: it must not call the set. Where none does, that is ErrTooMany.
func (s *Set) Use(topic string, now time.Time, limit int, expiry time.Duration, forget func(topic string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.used[topic]; !ok && len(s.used) >= limit {
		for t, at := range s.used {
			if expiry > 0 && now.Sub(at) > expiry && forget(t) {
				delete(s.used, t)
			}
		}
		if len(s.used) >= limit {
			return fmt.Errorf("%d of %d: %w", len(s.used), limit, ErrTooMany)
		}
	}
	if s.used == nil {
		s.used = make(map[string]time.Time)
	}
	s.used[topic] = now
	return nil
}

// Len is how many topics are in use.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.used)
}
