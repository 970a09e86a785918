package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/databus-suite/databus/cmd/databus/internal/configset"
	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/errs"
)

// assignment is a flag of its own for a config field; an empty value was not given.
type assignment struct{ path, value string }

// applySets makes the given flags and then the --set assignments part of the edit.
func applySets(edit *configset.Edit, sets []string, flags ...assignment) error {
	for _, f := range flags {
		if f.value == "" {
			continue
		}
		if err := edit.Set(f.path, f.value); err != nil {
			return err
		}
	}
	for _, s := range sets {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			return &usage{message: fmt.Sprintf("--set %s has no value", s), next: "write it as FIELD=VALUE, such as batch.linger=5ms"}
		}
		if err := edit.Set(path, value); err != nil {
			return err
		}
	}
	return nil
}

// unset makes fields go back to their defaults.
func unset(edit *configset.Edit, paths []string) error {
	for _, p := range paths {
		if err := edit.Unset(p); err != nil {
			return err
		}
	}
	return nil
}

// readConfigFile merges a file, or standard input for "-", into the edit.
func readConfigFile(edit *configset.Edit, path string, term *terminal) error {
	if path == "" {
		return nil
	}
	name := path
	var document []byte
	var err error
	if path == "-" {
		name = "standard input"
		document, err = io.ReadAll(term.in)
	} else {
		document, err = os.ReadFile(path)
	}
	if err != nil {
		return errs.New(errs.Invalid, "CONFIG_FILE", "read the config from %s", name).Wrap(err)
	}
	return edit.Merge(name, document)
}

// printSettings prints what a config sets, one field a line.
func printSettings(term *terminal, config proto.Message) error {
	settings, err := configset.Flatten(config)
	if err != nil {
		return err
	}
	rows := render.Rows{Header: []string{"CONFIG", "VALUE"}, Empty: "every config field has its default"}
	for _, s := range settings {
		rows.Add(s.Path, s.Value)
	}
	return printSection(term, rows)
}

// printChanges prints the differences of two configs.
func printChanges(term *terminal, changes []configset.Change) error {
	rows := render.Rows{Header: []string{"CONFIG", "FROM", "TO"}, Empty: "nothing differs"}
	for _, c := range changes {
		rows.Add(c.Path, orDefault(c.Old), orDefault(c.New))
	}
	return render.NewPrinter(term.out, render.Table, term.screen()).Print(nil, rows)
}

func orDefault(value string) string {
	if value == "" {
		return "default"
	}
	return value
}

// printSection prints a further table under another one.
func printSection(term *terminal, rows render.Rows) error {
	fmt.Fprintln(term.out)
	return render.NewPrinter(term.out, render.Table, term.screen()).Print(nil, rows)
}

// shortEnum is an enum's name as the JSON API writes it; the unspecified one reads as the default it stands for.
func shortEnum(name, prefix, unspecified string) string {
	short := strings.TrimPrefix(name, prefix)
	if short == "UNSPECIFIED" {
		return unspecified
	}
	return short
}

// labels writes labels as a=b,c=d in the order of their names.
func labels(set map[string]string) string {
	var list []string
	for k, v := range set {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return render.OrDash(strings.Join(list, ","))
}
