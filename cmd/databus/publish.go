package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/source"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/keypath"
)

type publishCmd struct {
	Channel  string   `arg:"" help:"Channel to publish to."`
	Messages []string `arg:"" optional:"" name:"message" help:"Payloads, one an argument. Left out: --file, else standard input."`

	File     []string `short:"f" help:"Input file (repeatable); - is standard input." sep:"none" type:"path" placeholder:"PATH"`
	Ndjson   bool     `help:"Every line is a payload that must be JSON." xor:"format"`
	Raw      bool     `help:"Every input is one payload, byte for byte." xor:"format"`
	Envelope bool     `help:"Every line is an object with key, value, headers, id, timestamp, as in the REST API." xor:"format"`

	Key          *string  `short:"k" help:"Key of every message." xor:"key"`
	KeyPath      string   `help:"Take the key from each JSON payload; the channel's own keyPath does the same for everybody." placeholder:"$.user.id" xor:"key"`
	KeySeparator string   `short:"K" help:"Every line is KEY, this separator, payload." placeholder:"TEXT" xor:"key"`
	Header       []string `short:"H" help:"Header of every message (repeatable)." placeholder:"NAME=VALUE" sep:"none"`
	Lane         string   `help:"Lane of every message: the header databus-lane."`

	Batch int           `help:"Most messages a request." default:"2000"`
	Retry time.Duration `help:"How long to keep trying while the agent is away or asks to wait. 0: not at all." default:"30s"`
	Quiet bool          `short:"q" help:"No progress and no summary."`
	agentFlags
	outputFlags
}

func (publishCmd) Help() string {
	return `Without a format flag every line is one payload, whatever is in it; empty lines are skipped. Messages are sent in
order, and the next request goes out when the one before is answered. A message that is refused does not stop those
behind it: each refusal is named on standard error, and the exit code tells.

With -o json standard output has one result a line, in the order of the messages.

Examples:

  databus publish hello '{"text":"hi"}'
  tail -f app.log | databus publish logs
  databus publish orders --ndjson --file orders.ndjson --key-path '$.user.id'
  databus read orders -o envelope | databus publish copy --envelope`
}

func (c *publishCmd) Run(ctx context.Context, term *terminal) error {
	options, err := c.options()
	if err != nil {
		return err
	}
	if len(c.Messages) > 0 && options.Format == source.Lines && options.KeySeparator == "" {
		options.Format = source.Raw // an argument is one payload, line breaks and all
	}
	inputs, err := c.inputs(term)
	if err != nil {
		return err
	}
	defer inputs.close()
	client, err := c.server().publish()
	if err != nil {
		return err
	}
	p := &publisher{
		channel: c.Channel, client: client, retry: c.Retry, batch: c.Batch, term: term,
		output: c.outputFlags, quiet: c.Quiet, started: time.Now(),
	}
	return p.run(ctx, inputs, options)
}

func (c *publishCmd) options() (source.Options, error) {
	o := source.Options{KeySeparator: c.KeySeparator}
	switch {
	case c.Ndjson:
		o.Format = source.NDJSON
	case c.Raw:
		o.Format = source.Raw
	case c.Envelope:
		o.Format = source.Envelope
	}
	if o.KeySeparator != "" && (c.Raw || c.Envelope) {
		return o, &usage{message: "--key-separator needs lines of payloads", next: "leave --raw and --envelope out"}
	}
	if c.Key != nil {
		o.Key = []byte(*c.Key)
	}
	if c.KeyPath != "" {
		path, err := keypath.Compile(c.KeyPath)
		if err != nil {
			return o, &usage{message: "--key-path: " + err.Error(), next: "write an RFC 9535 singular query such as $.user.id"}
		}
		o.KeyPath = path
	}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return o, &usage{message: fmt.Sprintf("--header %s has no value", h), next: "write it as NAME=VALUE"}
		}
		o.Headers = append(o.Headers, &databusv1.Header{Key: name, Value: []byte(value)})
	}
	if c.Lane != "" {
		o.Headers = append(o.Headers, &databusv1.Header{Key: "databus-lane", Value: []byte(c.Lane)})
	}
	if c.Batch < 1 || c.Batch > 10000 {
		return o, &usage{message: fmt.Sprintf("--batch %d is out of range", c.Batch), next: "give 1 to 10000"}
	}
	return o, nil
}

// input is one thing to read messages from.
type input struct {
	name string
	in   io.Reader
	size int64 // in bytes; -1: unknown
}

type inputs []input

func (list inputs) close() {
	for _, i := range list {
		if f, ok := i.in.(*os.File); ok {
			_ = f.Close() // it was only read
		}
	}
}

// size is the sum of all sizes, -1 where one is unknown.
func (list inputs) size() int64 {
	var total int64
	for _, i := range list {
		if i.size < 0 {
			return -1
		}
		total += i.size
	}
	return total
}

func (c *publishCmd) inputs(term *terminal) (inputs, error) {
	if len(c.Messages) > 0 && len(c.File) > 0 {
		return nil, &usage{message: "messages were given as arguments and by --file", next: "leave one of them out"}
	}
	var list inputs
	for i, m := range c.Messages {
		list = append(list, input{name: fmt.Sprintf("message %d", i+1), in: strings.NewReader(m), size: int64(len(m))})
	}
	for _, path := range c.File {
		if path == "-" {
			list = append(list, standardInput(term))
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			list.close()
			return nil, errs.New(errs.NotFound, "INPUT", "open the input").Wrap(err)
		}
		size := int64(-1)
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		list = append(list, input{name: path, in: f, size: size})
	}
	if len(list) == 0 {
		if term.inTTY && term.errTTY && !c.Quiet {
			fmt.Fprintln(term.err, "one message a line; Ctrl-D ends")
		}
		list = append(list, standardInput(term))
	}
	return list, nil
}

// standardInput hides the file, so that nobody closes it.
func standardInput(term *terminal) input {
	return input{name: "standard input", in: struct{ io.Reader }{term.in}, size: -1}
}
