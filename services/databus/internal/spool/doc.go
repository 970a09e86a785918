// Package spool owns the disk queue under the agent: finished record batches that a producer was already told are safe, and
// that no broker has acknowledged yet.
//
// Every partition of a topic has a [Queue]. Batches of many queues share the files of one directory, so that one fdatasync
// carries whatever gathered while the one before ran. A queue is sent in order. The identity of its producer (id, epoch) and
// the sequence of its head are kept in the files beside the batches, and a batch's own sequence follows from those and the
// batches before it. So a replay after a crash stamps what the first attempt stamped, and a broker that had appended it
// recognises it. A broker remembers the last five batches of a producer; therefore no batch is handed out that lies more than
// five after the newest acknowledgement that is itself on disk.
//
// The life of a batch:
//
//	Spool.Append ─▶ pending ─(written and synced)─▶ Queue.items ─(Queue.Next)─▶ in flight ─(Queue.Acked)─▶ gone
//
// docs/format/spool.md draws the files. A torn end is cut; a damaged record in the middle is skipped, counted and reported,
// and the rest is kept.
//
// The package knows bytes, names and numbers. It may not know gRPC, channel config or who carries the batches.
package spool
