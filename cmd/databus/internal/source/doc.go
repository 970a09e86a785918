// Package source turns what `databus publish` is given (arguments, files, standard input) into messages.
//
// It owns the input formats and knows where each message was found, so that a refusal can name the file and line. It may not
// know where the messages go: it makes no calls. A Source is for one goroutine, and closing what it reads is the caller's.
package source
