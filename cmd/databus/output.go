package main

import (
	"google.golang.org/protobuf/proto"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
)

// outputFlags are the flags of every command that prints resources.
type outputFlags struct {
	Output render.Format `short:"o" help:"Format: table, json (an object a line, as in REST) or yaml." enum:"table,json,yaml" default:"table" env:"DATABUS_OUTPUT"`
}

// printAll prints messages as documents in the mapping that REST has, or the rows as a table.
func printAll[M proto.Message](term *terminal, flags outputFlags, messages []M, rows render.Rows) error {
	var documents [][]byte
	if flags.Output != render.Table {
		for _, m := range messages {
			d, err := wirejson.AppendLine(nil, m)
			if err != nil {
				return errs.New(errs.Internal, "PRINT", "print %s", m.ProtoReflect().Descriptor().Name()).Wrap(err)
			}
			documents = append(documents, d)
		}
	}
	return render.NewPrinter(term.out, flags.Output, term.screen()).Print(documents, rows)
}
