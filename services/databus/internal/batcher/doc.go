// Package batcher turns messages into record batches and keeps each partition's batches in order until they are answered
// for. It owns linger, sizes and the adaptive mode, the window of batches in flight with its producer ids and sequences, the
// repeat of what was refused or lost, delivery deadlines, and the gate that keeps a key's order across a config change.
//
// It knows neither gRPC nor config nor channels: whoever carries the batches implements [Sink] and reports what became of
// each. The life of a message:
//
//	Topic.Append ─▶ source.open ─(due)─▶ Lane.due ─(Lane.Take)─▶ Lane.flight ─(Acked|Refused|Lost)─▶ Batch.Done
//
// A lane is one partition of one topic. Several channels may write to it; each has its own source there, hence its own
// batches. A batch that is due goes on growing until the sink takes it, so batches grow by themselves when the broker is the
// slower side.
//
// Sequences are exact: a batch that was ever sent stays in the window until the broker has answered for it, even when its
// deadline has passed and its producer was told so, because dropping it would leave a gap that nobody could tell from a loss.
// Only a batch that was never sent is dropped at its deadline.
package batcher
