// Package databus is the agent: the sidecar that takes messages over REST, Connect and gRPC, turns them into record batches
// as each channel's config says, and appends them to the broker.
//
// This is its public face: [Config], [New], [Agent.Run]. How a message travels:
//
//	intake ─▶ publisher ─▶ batcher ──────────────────▶ sender ─▶ broker
//	             ▲   │        └▶ relay ─▶ spool ─▶ relay ─▶┘      (level SPOOLED)
//	             │   └ dedup (ids), lane, memory (bounds)
//	          channel (config, watched)
//
// It may know the generated API of the broker; it may not import the broker.
package databus
