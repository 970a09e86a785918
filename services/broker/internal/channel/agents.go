package channel

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

const (
	// reportEvery is the longest that agents are asked to stay silent, and lookedAtEvery the same while somebody reads their
	// reports, until lookedAtFor after they did.
	reportEvery   = 10 * time.Second
	lookedAtEvery = time.Second
	lookedAtFor   = 30 * time.Second
	// reportLife is how long a report counts: a few reports may be lost.
	reportLife = time.Minute
	// maxAgents bounds the memory that reports take.
	maxAgents = 100_000
)

// agents holds what agents reported. It is kept in memory alone: agents report again within seconds of a restart.
type agents struct {
	now    func() time.Time
	mu     sync.Mutex
	byID   map[string]*agent
	pruned time.Time
	looked time.Time // when somebody read reports last
}

type agent struct {
	info     *databusv1.AgentInfo
	seen     time.Time
	channels map[string]*databusv1.ChannelReport
}

func newAgents(now func() time.Time) *agents {
	return &agents{now: now, byID: map[string]*agent{}}
}

// Report takes an agent's report. complete: reports lists all channels that the agent runs, not only those that changed.
func (r *Registry) Report(info *databusv1.AgentInfo, reports []*databusv1.ChannelReport, complete bool) error {
	if info.GetAgentId() == "" {
		return errs.New(errs.Invalid, "AGENT_ID", "agent report: the agent has no id").WithField("agent.agentId")
	}
	return r.agents.report(info, reports, complete)
}

// ReportEvery is the longest that agents may stay silent from now on.
func (r *Registry) ReportEvery() time.Duration {
	now := r.agents.now()
	r.agents.mu.Lock()
	defer r.agents.mu.Unlock()
	if now.Sub(r.agents.looked) < lookedAtFor {
		return lookedAtEvery
	}
	return reportEvery
}

func (a *agents) report(info *databusv1.AgentInfo, reports []*databusv1.ChannelReport, complete bool) error {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prune(now)
	it := a.byID[info.GetAgentId()]
	if it == nil {
		if len(a.byID) >= maxAgents {
			return errs.New(errs.Exhausted, "TOO_MANY_AGENTS", "agent report: %d agents have reported within the last minute", len(a.byID)).WithRetryAfter(reportLife)
		}
		it = &agent{}
		a.byID[info.GetAgentId()] = it
	}
	if complete || it.channels == nil {
		it.channels = make(map[string]*databusv1.ChannelReport, len(reports))
	}
	it.info, it.seen = info, now
	for _, report := range reports {
		kept := proto.CloneOf(report)
		kept.ReportTime = timestamppb.New(now)
		it.channels[report.GetChannel()] = kept
	}
	return nil
}

// prune forgets the agents that are silent. The caller holds mu.
func (a *agents) prune(now time.Time) {
	if now.Sub(a.pruned) < reportLife/4 {
		return
	}
	a.pruned = now
	for id, it := range a.byID {
		if now.Sub(it.seen) > reportLife {
			delete(a.byID, id)
		}
	}
}

// Status returns the revision in force and what each agent that reported within the last minute said of the channel.
func (r *Registry) Status(name string) (*databusv1.GetChannelStatusResponse, error) {
	s, err := r.get(name)
	if err != nil {
		return nil, err
	}
	return &databusv1.GetChannelStatusResponse{Revision: s.base.revision, Agents: r.agents.of(name)}, nil
}

func (a *agents) of(channel string) []*databusv1.AgentChannelStatus {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looked = now
	var list []*databusv1.AgentChannelStatus
	for _, it := range a.byID {
		if report := it.channels[channel]; report != nil && now.Sub(it.seen) <= reportLife {
			list = append(list, &databusv1.AgentChannelStatus{Agent: it.info, Report: report})
		}
	}
	slices.SortFunc(list, func(x, y *databusv1.AgentChannelStatus) int {
		return cmp.Or(cmp.Compare(x.Agent.GetHost(), y.Agent.GetHost()), cmp.Compare(x.Agent.GetAgentId(), y.Agent.GetAgentId()))
	})
	return list
}
