// Package dedup owns the memory of message ids: a repeat of an id within its channel's window gets the first result again, also
// after a restart of the agent, and the same id with another body is told from a repeat.
//
// A message with an id takes a [Claim]. Before its batch goes out, [Channel.Intend] writes to a file who is in it and how the
// broker will know it; the answer is written into the same record. After a restart a record without an answer is a [Doubt]: its
// ids wait until somebody has found out whether the batch is in the log.
//
// Writes go to the page cache and are not synced: they survive the death of the process, not that of the machine. After a
// power loss the ids of the last seconds may be forgotten, and a repeat of one is then a new message.
//
// In memory an id takes 8 bytes in a table that is at most three quarters full; everything else is read from the file, where a
// lookup that hits reads twice. Files are dropped whole, a quarter of the window at a time. docs/format/dedup.md draws them.
//
// The package knows bytes, names and numbers. It may not know gRPC, channel config or how batches are sent.
package dedup
