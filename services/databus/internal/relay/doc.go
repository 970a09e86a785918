// Package relay carries the batches of channels whose level is SPOOLED: [In] takes them from the batcher into the spool, where their
// producers are answered, and [Out] takes them from the spool to the sender, until the broker has them.
//
// It owns the repeat of what the broker refused or lost. It knows the batcher, the spool and the sender's lanes; it may not know
// channels' configs or how batches are sent.
package relay
