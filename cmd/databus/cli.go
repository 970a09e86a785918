package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

// commands is the command line. A field is a subcommand; its struct is in the file of its name.
type commands struct {
	Dev       devCmd       `cmd:"" help:"Run the whole suite in one process."`
	Broker    brokerCmd    `cmd:"" help:"Run a broker."`
	Agent     agentCmd     `cmd:"" help:"Run an agent."`
	Topic     topicCmd     `cmd:"" help:"Create, list, show, change and delete topics."`
	Channel   channelCmd   `cmd:"" help:"Create, list, show, change and delete channels, and go back to earlier configs."`
	Publish   publishCmd   `cmd:"" help:"Publish messages from arguments, files or standard input to a channel."`
	Read      readCmd      `cmd:"" help:"Read a topic's messages, once or as they come."`
	Directory directoryCmd `cmd:"" help:"List a broker's data directories, and take a mended one back."`
	Log       logCmd       `cmd:"" help:"Verify, print and repair the files of a log without a broker."`
	Version   versionCmd   `cmd:"" help:"Print the version of this binary."`
}

const description = `Databus takes events from applications, keeps them in a partitioned log and hands them out again.

Start everything in one process with "databus dev", then publish to a channel and read its topic back.

Exit codes: 0 done, 1 error, 2 wrong usage or refused input, 3 not found, 4 exists or conflicts, 5 unavailable (try again), 130 interrupted, 143 terminated.`

// exitRequest carries kong's wish to exit (after --help) up to run, which alone decides on the exit code.
type exitRequest int

// run parses args, runs the command they name and returns the exit code. It is the whole program but for os.Exit, so that
// tests call it too.
func run(args []string, term *terminal) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exitRequest:
			code = int(r)
		default:
			panic(r)
		}
	}()
	parser, err := newParser(&commands{}, term)
	if err != nil {
		return report(term, err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return report(term, usageError(err))
	}

	ctx, interrupted, stop := interruptible(context.Background())
	defer stop()
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(term)
	if sig := interrupted(); sig != 0 && err != nil {
		return 128 + int(sig)
	}
	return report(term, err)
}

func newParser(c *commands, term *terminal) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("databus"),
		kong.Description(description),
		kong.Writers(term.out, term.err),
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Vars{"template": render.TemplateHelp},
		kong.WithHyphenPrefixedParameters(true), // read --offset -10
	)
}

// usageError adds the command to ask for help to what kong found wrong.
func usageError(err error) error {
	command := "databus"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		command = strings.TrimSpace(parse.Context.Model.Name + " " + commandPath(parse.Context))
	}
	return &usage{message: err.Error(), next: fmt.Sprintf("see `%s --help`", command)}
}

func commandPath(c *kong.Context) string {
	var words []string
	for _, p := range c.Path {
		if p.Command != nil {
			words = append(words, p.Command.Name)
		}
	}
	return strings.Join(words, " ")
}

// interruptible returns a context that the first SIGINT or SIGTERM cancels. A second one ends the process at once, as it
// would without us, so that nobody has to reach for SIGKILL.
func interruptible(parent context.Context) (ctx context.Context, interrupted func() syscall.Signal, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	var got atomic.Int32
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			if n, ok := s.(syscall.Signal); ok {
				got.Store(int32(n))
			}
			cancel()
		case <-ctx.Done():
		}
	}()
	stop = func() {
		signal.Stop(signals)
		cancel()
	}
	return ctx, func() syscall.Signal { return syscall.Signal(got.Load()) }, stop
}
