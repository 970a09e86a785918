// Package brokertest is a small broker for the agent's own tests: topics, channels with a watch, and logs in memory that keep
// Kafka's rules of idempotent producers to the letter, over real gRPC. It can be stopped and started again with what it holds,
// refuse, forget, and lose answers. Tests over the real broker live in /test.
package brokertest
