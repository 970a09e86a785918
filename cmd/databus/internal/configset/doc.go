// Package configset edits a config message (of a channel or a topic) by field paths such as batch.linger: it reads
// assignments and files into an edit, says which fields the edit names, and flattens a config into lines and differences.
//
// It owns the text form of fields on the command line. It knows protobuf descriptors, not which fields there are, so that a
// new field in the proto is there at once. It makes no calls. An Edit is for one goroutine.
package configset
