package main

import (
	"context"

	"github.com/databus-suite/databus/bench/internal/peer"
	"github.com/databus-suite/databus/bench/internal/suite"
)

// topic is what everything is appended to and fetched from.
const topic = "bench"

// broker is a running bin/databus broker.
type broker struct {
	*peer.Process
	grpc string
}

// startBroker starts one in dir, or in a directory of its own where dir is empty; there it gets a topic of so many
// partitions, unless that is 0.
func startBroker(ctx context.Context, o *options, dir string, partitions int) (*broker, error) {
	p, httpAddr, grpcAddr, err := peer.Databus(ctx, o.root, dir, "broker", "data_dirs: [data]\n")
	if err != nil {
		return nil, err
	}
	if partitions > 0 {
		err = suite.CreateTopic(ctx, httpAddr, topic, partitions)
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return &broker{Process: p, grpc: grpcAddr}, nil
}
