// Package publisher takes messages for channels: it finds the channel's plan, checks limits, routes each message to a topic
// and a partition, hands it to the batcher, and tells what became of it. Every intake ends here.
//
// It knows plans, memory bounds and batches. It knows neither HTTP nor gRPC, nor how batches reach the broker.
package publisher
