// Package render turns what the client commands found into text: tables for people, JSON lines and YAML for programs, and
// messages in the formats of `databus read`.
//
// It owns layout, colours and widths. It may not know where the data is from: it makes no calls and reads no flags.
// Nothing in it may be used by several goroutines at a time.
package render
