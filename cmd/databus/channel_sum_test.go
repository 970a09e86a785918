package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

func reportAt(at int64, accepted, rejected int64) *databusv1.ChannelReport {
	return &databusv1.ChannelReport{Revision: 3, Accepted: accepted, Rejected: rejected, RejectedBy: map[string]int64{"RATE_LIMITED": rejected},
		BatchesBy: map[string]int64{"linger": accepted / 10}, RawBytes: accepted * 100, BatchBytes: accepted * 25,
		Latency:    &databusv1.RecentTimes{Count: 1, P50: durationpb.New(time.Millisecond), P99: durationpb.New(time.Duration(accepted) * time.Millisecond)},
		Circuit:    databusv1.CircuitState_CIRCUIT_STATE_CLOSED,
		ReportTime: timestamppb.New(time.Unix(at, 0)), PendingBytes: 7}
}

func statusOf(reports map[string]*databusv1.ChannelReport) *databusv1.GetChannelStatusResponse {
	s := &databusv1.GetChannelStatusResponse{Revision: 4}
	for id, r := range reports {
		s.Agents = append(s.Agents, &databusv1.AgentChannelStatus{Agent: &databusv1.AgentInfo{AgentId: id}, Report: r})
	}
	return s
}

func TestSumUp(t *testing.T) {
	t.Parallel()
	type reports = map[string]*databusv1.ChannelReport
	for _, tc := range []struct {
		name     string
		statuses []reports
		want     func(*channelSum)
	}{
		{"one report gives no rates", []reports{{"a": reportAt(10, 100, 5)}}, func(*channelSum) {}},
		{"rates between two reports", []reports{{"a": reportAt(8, 0, 0)}, {"a": reportAt(10, 100, 5)}}, func(s *channelSum) {
			s.MessagesPerSecond, s.RejectedPerSecond = 50, 2.5
		}},
		{"no news keeps the rates", []reports{{"a": reportAt(8, 0, 0)}, {"a": reportAt(10, 100, 5)}, {"a": reportAt(10, 100, 5)}}, func(s *channelSum) {
			s.MessagesPerSecond, s.RejectedPerSecond = 50, 2.5
		}},
		{"an agent that started again", []reports{{"a": reportAt(8, 900, 0)}, {"a": reportAt(10, 100, 5)}}, func(*channelSum) {}},
		{"an agent that went away", []reports{{"a": reportAt(8, 0, 0), "b": reportAt(8, 9, 9)}, {"a": reportAt(10, 100, 5)}}, func(s *channelSum) {
			s.MessagesPerSecond, s.RejectedPerSecond = 50, 2.5
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := channelSum{Channel: "c", Revision: 4, Agents: 1, Behind: 1, Accepted: 100, Rejected: 5, RejectedBy: map[string]int64{"RATE_LIMITED": 5},
				MessagesPerBatch: 10, ClosedBy: "linger", CompressionRatio: 4, Latency: &recentTimes{P50Millis: 1, P99Millis: 100}, PendingBytes: 7, Circuit: "CLOSED"}
			tc.want(&want)
			var history reportHistory
			for _, r := range tc.statuses {
				history = history.next(statusOf(r))
			}
			if diff := cmp.Diff(want, sumUp("c", 4, history)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
