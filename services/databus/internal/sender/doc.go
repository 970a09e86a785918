// Package sender carries batches from the agent to the broker: one append stream a topic, producer ids, and what is known of
// topics. It owns reconnects and what a broker's answer means for a batch; order, sequences and repeats belong to the batcher.
//
// It knows the broker's gRPC API and nothing of channels or of the agent's own API.
package sender
