package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// channelSum is what all agents together do with a channel.
type channelSum struct {
	Channel           string           `json:"channel"`
	Revision          int64            `json:"revision"`
	Agents            int              `json:"agents"`
	Behind            int              `json:"behind"` // agents that run an older revision
	MessagesPerSecond float64          `json:"messagesPerSecond"`
	RejectedPerSecond float64          `json:"rejectedPerSecond"`
	FailedPerSecond   float64          `json:"failedPerSecond"`
	Accepted          int64            `json:"accepted"` // this and the next two since the agents started
	Rejected          int64            `json:"rejected"`
	RejectedBy        map[string]int64 `json:"rejectedBy"`
	MessagesPerBatch  float64          `json:"messagesPerBatch"`
	ClosedBy          string           `json:"closedBy,omitempty"` // what closes most batches
	CompressionRatio  float64          `json:"compressionRatio"`
	Queue             *recentTimes     `json:"queue,omitempty"`
	Latency           *recentTimes     `json:"latency,omitempty"`
	PendingBytes      int64            `json:"pendingBytes"`
	SpoolBytes        int64            `json:"spoolBytes"`
	Circuit           string           `json:"circuit,omitempty"` // the worst
}

// recentTimes are the times of the agent that is worst off.
type recentTimes struct {
	P50Millis float64 `json:"p50Millis"`
	P99Millis float64 `json:"p99Millis"`
}

func (t *recentTimes) worse(r *databusv1.RecentTimes) *recentTimes {
	if r.GetCount() == 0 {
		return t
	}
	if t == nil {
		t = &recentTimes{}
	}
	t.P50Millis, t.P99Millis = max(t.P50Millis, inMillis(r.GetP50())), max(t.P99Millis, inMillis(r.GetP99()))
	return t
}

func inMillis(d *durationpb.Duration) float64 {
	return float64(d.AsDuration()) / float64(time.Millisecond)
}

// severity orders the states of a circuit.
var severity = map[databusv1.CircuitState]int{
	databusv1.CircuitState_CIRCUIT_STATE_CLOSED:    1,
	databusv1.CircuitState_CIRCUIT_STATE_HALF_OPEN: 2,
	databusv1.CircuitState_CIRCUIT_STATE_OPEN:      3,
}

// sumUp adds up the agents' reports. What describes batches is of the time between an agent's reports before and now, or since
// the agent started where there is none before.
func sumUp(name string, revision int64, reports reportHistory) channelSum {
	s := channelSum{Channel: name, Revision: revision, Agents: len(reports), RejectedBy: map[string]int64{}}
	worst := databusv1.CircuitState_CIRCUIT_STATE_UNSPECIFIED
	closed := map[string]int64{}
	var messages, raw, encoded int64
	for _, pair := range reports {
		r, was := pair.now, pair.was
		if r.GetRevision() < s.Revision {
			s.Behind++
		}
		s.rates(was, r)
		s.Accepted += r.GetAccepted()
		s.Rejected += r.GetRejected()
		s.PendingBytes += r.GetPendingBytes()
		s.SpoolBytes += r.GetSpoolBytes()
		for reason, n := range r.GetRejectedBy() {
			s.RejectedBy[reason] += n
		}
		for why, n := range r.GetBatchesBy() {
			closed[why] += n - was.GetBatchesBy()[why]
		}
		messages += r.GetAccepted() - was.GetAccepted()
		raw += r.GetRawBytes() - was.GetRawBytes()
		encoded += r.GetBatchBytes() - was.GetBatchBytes()
		s.Queue, s.Latency = s.Queue.worse(r.GetQueue()), s.Latency.worse(r.GetLatency())
		if severity[r.GetCircuit()] > severity[worst] {
			worst = r.GetCircuit()
		}
	}
	s.batches(closed, messages, raw, encoded)
	s.Circuit = shortEnum(worst.String(), "CIRCUIT_STATE_", "")
	return s
}

// rates adds an agent's messages a second between two of its reports.
func (s *channelSum) rates(was, now *databusv1.ChannelReport) {
	seconds := now.GetReportTime().AsTime().Sub(was.GetReportTime().AsTime()).Seconds()
	if was == nil || seconds <= 0 {
		return
	}
	s.MessagesPerSecond += float64(now.GetAccepted()-was.GetAccepted()) / seconds
	s.RejectedPerSecond += float64(now.GetRejected()-was.GetRejected()) / seconds
	s.FailedPerSecond += float64(now.GetFailed()-was.GetFailed()) / seconds
}

func (s *channelSum) batches(closed map[string]int64, messages, raw, encoded int64) {
	var count, most int64
	for why, n := range closed {
		count += n
		if n > most || n == most && n > 0 && why < s.ClosedBy {
			most, s.ClosedBy = n, why
		}
	}
	if count > 0 {
		s.MessagesPerBatch = float64(messages) / float64(count)
	}
	if encoded > 0 {
		s.CompressionRatio = float64(raw) / float64(encoded)
	}
}

// reportPair is an agent's newest report and the one before it.
type reportPair struct{ was, now *databusv1.ChannelReport }

// reportHistory holds the last two reports of each agent on a channel, so that rates are between two reports, however often
// somebody asks.
type reportHistory map[string]reportPair

// next is the history after a status. Agents that are gone are forgotten.
func (h reportHistory) next(status *databusv1.GetChannelStatusResponse) reportHistory {
	out := make(reportHistory, len(status.GetAgents()))
	for _, a := range status.GetAgents() {
		id, r := a.GetAgent().GetAgentId(), a.GetReport()
		pair, known := h[id]
		switch {
		case !known || pair.now.GetAccepted() > r.GetAccepted(): // a new agent, or one that started again
			pair = reportPair{now: r}
		case r.GetReportTime().AsTime().After(pair.now.GetReportTime().AsTime()):
			pair = reportPair{was: pair.now, now: r}
		}
		out[id] = pair
	}
	return out
}
