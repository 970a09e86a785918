package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// runFor runs a command line without a terminal and returns what it left.
func runFor(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(args, &terminal{in: strings.NewReader(stdin), out: &out, err: &errOut})
	return code, out.String(), errOut.String()
}

// TestEveryCommandHasExamples holds help to what it promises: a line for each command and flag, and examples that parse.
func TestEveryCommandHasExamples(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commands{}, &terminal{out: io.Discard, err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	err = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		switch n := node.(type) {
		case *kong.Node:
			if n.Help == "" && n.Parent != nil {
				t.Errorf("%s has no help", n.FullPath())
			}
			if n.Leaf() && n.Type == kong.CommandNode && n.Name != "version" {
				checkExamples(t, n)
			}
		case *kong.Flag:
			if n.Help == "" {
				t.Errorf("flag --%s has no help", n.Name)
			}
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkExamples(t *testing.T, n *kong.Node) {
	t.Helper()
	_, examples, found := strings.Cut(n.Detail, "Examples:")
	if !found {
		t.Errorf("%s has no examples in its help", n.FullPath())
		return
	}
	for line := range strings.Lines(examples) {
		for _, command := range strings.FieldsFunc(line, func(r rune) bool { return r == '|' || r == '>' || r == '&' || r == '#' || r == '\n' }) {
			words, ok := shellWords(strings.TrimSpace(command))
			if !ok || len(words) == 0 || words[0] != "databus" {
				continue
			}
			parser, err := newParser(&commands{}, &terminal{out: io.Discard, err: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			// A directory that an example names need not be on this machine.
			if _, err := parser.Parse(words[1:]); err != nil && !strings.Contains(err.Error(), "no such file or directory") {
				t.Errorf("%s: example %q: %v", n.FullPath(), command, err)
			}
		}
	}
}

// shellWords splits a line at spaces outside of single quotes.
func shellWords(line string) (words []string, ok bool) {
	parts := strings.Split(line, "'")
	if len(parts)%2 == 0 {
		return nil, false
	}
	var word strings.Builder
	inWord := false
	flush := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	for i, part := range parts {
		if i%2 == 1 {
			word.WriteString(part)
			inWord = true
			continue
		}
		for _, r := range part {
			if r == ' ' {
				flush()
				continue
			}
			word.WriteRune(r)
			inWord = true
		}
	}
	flush()
	return words, true
}

func TestExitCodesAndErrors(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1" // no service has that port
	tests := []struct {
		name   string
		args   []string
		code   int
		stderr []string // each must be in the one line on standard error
	}{
		{"unknown command", []string{"topik"}, exitUsage, []string{"topik", "databus --help"}},
		{"missing argument", []string{"topic", "get"}, exitUsage, []string{"<topic>", "databus topic get --help"}},
		{"unknown flag", []string{"topic", "list", "--adr", "x"}, exitUsage, []string{"--adr", "databus topic list --help"}},
		{"bad enum", []string{"topic", "list", "-o", "xml"}, exitUsage, []string{"xml", "table"}},
		{"nobody answers", []string{"topic", "list", "--addr", nobody}, exitUnavailable, []string{nobody, "connection refused", "databus dev", "DATABUS_BROKER"}},
		{"no agent answers", []string{"publish", "hello", "x", "--retry", "0s", "--addr", nobody}, exitUnavailable, []string{nobody, "message 1", "DATABUS_AGENT"}},
		{"address is none", []string{"topic", "list", "--addr", "ftp://x"}, exitUsage, []string{"ftp://x", "HOST:PORT"}},
		{"unknown config field", []string{"channel", "update", "x", "--set", "batch.lingr=5ms"}, exitUsage, []string{"batch.lingr", "batch.linger"}},
		{"bad duration", []string{"channel", "update", "x", "--linger", "soon"}, exitUsage, []string{"config.batch.linger", "soon"}},
		{"bad codec", []string{"channel", "create", "x", "--codec", "zip"}, exitUsage, []string{"config.compression.codec", "ZSTD"}},
		{"bad size", []string{"topic", "create", "x", "--retention-bytes", "many"}, exitUsage, []string{"config.retentionBytes", "many"}},
		{"nothing to change", []string{"topic", "update", "x"}, exitUsage, []string{"nothing to change", "--set"}},
		{"pause and resume", []string{"channel", "update", "x", "--pause", "--resume"}, exitUsage, []string{"--pause", "--resume"}},
		{"route without rule", []string{"channel", "create", "x", "--route", "a="}, exitUsage, []string{"--route"}},
		{"two formats", []string{"publish", "x", "--raw", "--ndjson"}, exitUsage, []string{"--raw", "--ndjson"}},
		{"arguments and file", []string{"publish", "x", "a", "--file", "-"}, exitUsage, []string{"--file"}},
		{"no such file", []string{"publish", "x", "--file", "/nonexistent"}, exitNotFound, []string{"/nonexistent"}},
		{"bad key path", []string{"publish", "x", "a", "--key-path", "user"}, exitUsage, []string{"--key-path", "$.user.id"}},
		{"bad header", []string{"publish", "x", "a", "-H", "novalue"}, exitUsage, []string{"--header", "NAME=VALUE"}},
		{"bad offset", []string{"read", "x", "--offset", "first"}, exitUsage, []string{"--offset first", "earliest"}},
		{"bad since", []string{"read", "x", "--since", "yesterday"}, exitUsage, []string{"yesterday", "10m"}},
		{"bad template", []string{"read", "x", "--format", "%x"}, exitUsage, []string{"%x", "%k key"}},
		{"offset and since", []string{"read", "x", "--offset", "1", "--since", "1m"}, exitUsage, []string{"--offset", "--since"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := runFor(t, "", tt.args...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if stdout != "" {
				t.Errorf("standard output is not empty: %q", stdout)
			}
			if lines := strings.Count(stderr, "\n"); lines != 1 {
				t.Errorf("standard error has %d lines, want 1: %q", lines, stderr)
			}
			for _, want := range tt.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error %q does not say %q", stderr, want)
				}
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"topic", "create", "--help"}} {
		code, stdout, stderr := runFor(t, "", args...)
		if code != exitOK || !strings.Contains(stdout, "Usage: databus") || stderr != "" {
			t.Errorf("%v: exit code %d, standard output %q, standard error %q", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := runFor(t, "", "version"); code != exitOK || !strings.HasPrefix(stdout, "databus ") {
		t.Errorf("version: exit code %d, standard output %q", code, stdout)
	}
}
