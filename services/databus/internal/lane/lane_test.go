package lane

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
)

func headers(kv ...string) (hs []recordbatch.RecordHeader) {
	for i := 0; i < len(kv); i += 2 {
		hs = append(hs, recordbatch.RecordHeader{Key: kv[i], Value: []byte(kv[i+1])})
	}
	return hs
}

func TestOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		headers   []recordbatch.RecordHeader
		want      string
		inBaggage bool
	}{
		{"none", nil, "", false},
		{"header", headers("a", "b", "databus-lane", "red"), "red", false},
		{"baggage", headers("baggage", "userId=alice, databus-lane = red;ttl=1 ,x=y"), "red", true},
		{"escaped", headers("baggage", "databus-lane=a%2Fb"), "a/b", true},
		{"header wins", headers("baggage", "databus-lane=blue", "databus-lane", "red"), "red", false},
		{"other baggage", headers("baggage", "databus-lanes=red,,=,x"), "", false},
	} {
		if got, in := Of(tc.headers); got != tc.want || in != tc.inBaggage {
			t.Errorf("%s: %q %v, want %q %v", tc.name, got, in, tc.want, tc.inBaggage)
		}
	}
}

func TestTopic(t *testing.T) {
	t.Parallel()
	if got, err := Topic("orders", "pr-12_a"); got != "orders.lane.pr-12_a" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []string{"", "a.b", "a/b", "ä", "a b", strings.Repeat("x", 65)} {
		if _, err := Topic("orders", bad); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v, want ErrName", bad, err)
		}
	}
	if _, err := Topic(strings.Repeat("t", 240), "lane"); !errors.Is(err, ErrName) {
		t.Errorf("long topic: %v, want ErrName", err)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	var s Set
	stuck := true
	agree := func(string) bool { return !stuck }
	now := time.Unix(1000, 0)
	for _, topic := range []string{"a", "b", "a"} {
		if err := s.Use(topic, now, 2, time.Minute, agree); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Use("c", now.Add(time.Minute), 2, time.Minute, agree); !errors.Is(err, ErrTooMany) {
		t.Fatalf("third: %v, want ErrTooMany", err)
	}
	if err := s.Use("b", now.Add(time.Minute), 2, time.Minute, agree); err != nil {
		t.Fatal(err)
	}
	if err := s.Use("c", now.Add(90*time.Second), 2, time.Minute, agree); !errors.Is(err, ErrTooMany) {
		t.Fatalf("while the idle one still sends: %v, want ErrTooMany", err)
	}
	stuck = false
	if err := s.Use("c", now.Add(90*time.Second), 2, time.Minute, agree); err != nil || s.Len() != 2 {
		t.Fatalf("after the idle one went: %v, %d in use", err, s.Len())
	}
}

func FuzzOf(f *testing.F) {
	f.Add("a=b,databus-lane=red;x")
	f.Fuzz(func(t *testing.T, list string) {
		name, _ := Of(headers("baggage", list))
		if Check(name) == nil && !strings.Contains(list, Header) {
			t.Errorf("%q from %q", name, list)
		}
	})
}
