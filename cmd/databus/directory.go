package main

import (
	"context"
	"strconv"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

// directoryCmd is `databus directory`.
type directoryCmd struct {
	List    directoryListCmd    `cmd:"" aliases:"ls" help:"List the data directories, their state and their room."`
	Restore directoryRestoreCmd `cmd:"" help:"Take a fenced directory back after its disk was mended."`
}

type directoryListCmd struct {
	brokerFlags
	outputFlags
}

func (directoryListCmd) Help() string {
	return `HEALTHY takes writes, FULL will when there is room again, FENCED will after databus directory restore.

Examples:

  databus directory list
  databus directory list -o json | jq -r .state`
}

func (c *directoryListCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().storage()
	if err != nil {
		return err
	}
	res, err := client.ListDirectories(ctx, &brokerv1.ListDirectoriesRequest{})
	if err != nil {
		return err
	}
	return printDirectories(term, c.outputFlags, res.GetDirectories()...)
}

type directoryRestoreCmd struct {
	Path string `arg:"" help:"Path as databus directory list shows it."`
	brokerFlags
	outputFlags
}

func (directoryRestoreCmd) Help() string {
	return `The broker first shows that it can write to the directory and sync it. What the directory holds can be read again, and partitions
that had nowhere to go on continue there.

Examples:

  databus directory restore /disk2/log`
}

func (c *directoryRestoreCmd) Run(ctx context.Context, term *terminal) error {
	client, err := c.server().storage()
	if err != nil {
		return err
	}
	res, err := client.RestoreDirectory(ctx, &brokerv1.RestoreDirectoryRequest{Path: c.Path})
	if err != nil {
		return err
	}
	return printDirectories(term, c.outputFlags, res.GetDirectory())
}

func printDirectories(term *terminal, flags outputFlags, dirs ...*brokerv1.Directory) error {
	rows := render.Rows{
		Header: []string{"DIRECTORY", "STATE", "FREE", "TOTAL", "SEGMENTS", "FENCED", "ERROR"},
		Right:  []string{"FREE", "TOTAL", "SEGMENTS"},
	}
	for _, d := range dirs {
		fenced := "-"
		if t := d.GetFenceTime(); t != nil {
			fenced = render.Time(t.AsTime())
		}
		rows.Add(d.GetPath(), shortEnum(d.GetState().String(), "DIRECTORY_STATE_", "UNKNOWN"), render.Bytes(d.GetFreeBytes()), render.Bytes(d.GetTotalBytes()),
			strconv.FormatInt(d.GetSegments(), 10), fenced, render.OrDash(d.GetError()))
	}
	return printAll(term, flags, dirs, rows)
}
