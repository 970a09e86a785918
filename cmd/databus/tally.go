package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

// place is a partition of a topic; -1 stands for messages that have no offset yet.
type place struct {
	topic     string
	partition int32
}

// landed is what reached a place.
type landed struct {
	place
	messages    int64
	first, last int64
}

// tally counts where messages went.
type tally struct {
	places     map[place]*landed
	accepted   int64
	duplicates int64
	refused    int64
}

func (t *tally) total() int64 { return t.accepted + t.refused }

func (t *tally) refuse() { t.refused++ }

func (t *tally) add(r *databusv1.PublishResult) {
	t.accepted++
	if r.GetDuplicate() {
		t.duplicates++
	}
	at := place{topic: r.GetTopic(), partition: -1}
	if r.Offset != nil {
		at.partition = r.GetPartition()
	}
	l := t.places[at]
	if l == nil {
		if t.places == nil {
			t.places = map[place]*landed{}
		}
		l = &landed{place: at, first: r.GetOffset(), last: r.GetOffset()}
		t.places[at] = l
	}
	l.messages++
	l.first, l.last = min(l.first, r.GetOffset()), max(l.last, r.GetOffset())
}

// rows lists the places in their order.
func (t *tally) rows() render.Rows {
	rows := render.Rows{Header: []string{"TOPIC", "PARTITION", "MESSAGES", "OFFSETS"}, Right: []string{"PARTITION", "MESSAGES"}}
	var list []*landed
	for _, l := range t.places {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *landed) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, l := range list {
		partition, offsets := strconv.Itoa(int(l.partition)), fmt.Sprintf("%d-%d", l.first, l.last)
		switch {
		case l.partition < 0:
			partition, offsets = "-", "not yet in the log"
		case l.first == l.last:
			offsets = strconv.FormatInt(l.first, 10)
		}
		rows.Add(render.OrDash(l.topic), partition, render.Count(l.messages), offsets)
	}
	return rows
}

// text says it in one sentence.
func (t *tally) text() string {
	s := "published " + render.Plural(t.accepted, "message")
	if t.duplicates > 0 {
		s += fmt.Sprintf(" (%s seen before)", render.Count(t.duplicates))
	}
	if t.refused > 0 {
		s += fmt.Sprintf(", %s refused,", render.Count(t.refused))
	}
	return s
}

// newBackOff is how calls are repeated while a service is away: soon at first, then every few seconds.
func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = 100*time.Millisecond, 2, 3*time.Second
	return b
}
