// Package natskv is the suite's metadata store: typed key-value buckets with revisions and compare-and-set over NATS
// JetStream, and the embedded NATS server that a machine without a cluster uses. It owns connections, key encoding and the
// translation of NATS errors into errs; it knows nothing about topics, channels or any other value that is kept in it.
//
// Metadata is small and seldom written: nothing here is on the data path. The embedded server syncs each write before it
// answers, because JetStream's default answers up to two minutes before it does.
package natskv
