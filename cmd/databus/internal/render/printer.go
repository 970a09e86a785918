package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Format is how resources are printed.
type Format string

// Formats of resources.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Screen is what is known of the other end.
type Screen struct {
	// Color allows colours.
	Color bool
	// Width in columns; 0: no bound, nothing is cut.
	Width int
}

// Printer prints resources in one format.
type Printer struct {
	out     io.Writer
	format  Format
	screen  Screen
	printed int
}

// NewPrinter returns a printer to out.
func NewPrinter(out io.Writer, format Format, screen Screen) *Printer {
	return &Printer{out: out, format: format, screen: screen}
}

// Rows is a table: a header and cells as text.
type Rows struct {
	Header []string
	Cells  [][]string
	// Right names the columns that hold numbers.
	Right []string
	// Empty is said instead of a table without cells.
	Empty string
}

// Add appends one row.
func (r *Rows) Add(cells ...string) { r.Cells = append(r.Cells, cells) }

// Width is how many columns of the screen the table takes.
func (r *Rows) Width() int { return max(widthBefore(*r, len(r.Header))-2, 0) }

// Remove takes a column out, where there is one of that name.
func (r *Rows) Remove(name string) {
	i := slices.Index(r.Header, name)
	if i < 0 {
		return
	}
	r.Header = slices.Delete(r.Header, i, i+1)
	for k := range r.Cells {
		r.Cells[k] = slices.Delete(r.Cells[k], i, i+1)
	}
	r.Right = slices.DeleteFunc(r.Right, func(n string) bool { return n == name })
}

// Print prints documents, each one JSON object, as lines of JSON or as YAML, or the rows as a table.
func (p *Printer) Print(documents [][]byte, rows Rows) error {
	switch p.format {
	case JSON:
		return p.lines(documents)
	case YAML:
		return p.yaml(documents)
	default:
		return p.table(rows)
	}
}

func (p *Printer) lines(documents [][]byte) error {
	var buf bytes.Buffer
	for _, d := range documents {
		if err := json.Compact(&buf, d); err != nil {
			return fmt.Errorf("print as json: %w", err)
		}
		buf.WriteByte('\n')
	}
	_, err := p.out.Write(buf.Bytes())
	return err
}

func (p *Printer) yaml(documents [][]byte) error {
	for _, d := range documents {
		y, err := yaml.JSONToYAML(d)
		if err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
		if p.printed > 0 {
			y = append([]byte("---\n"), y...)
		}
		p.printed++
		if _, err := p.out.Write(y); err != nil {
			return err
		}
	}
	return nil
}

func (p *Printer) table(rows Rows) error {
	if len(rows.Cells) == 0 {
		if rows.Empty == "" {
			return nil
		}
		_, err := fmt.Fprintln(p.out, rows.Empty)
		return err
	}
	w := table.NewWriter()
	w.SetStyle(p.style())
	w.SetColumnConfigs(p.columns(rows))
	w.AppendHeader(toRow(rows.Header))
	for _, cells := range rows.Cells {
		w.AppendRow(toRow(cells))
	}
	w.SuppressTrailingSpaces()
	_, err := fmt.Fprintln(p.out, w.Render())
	return err
}

// style is plain columns, as in `ps`: they survive copying, cutting and grep.
func (p *Printer) style() table.Style {
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	if p.screen.Color {
		style.Color.Header = text.Colors{text.Bold}
	}
	return style
}

func (p *Printer) columns(rows Rows) []table.ColumnConfig {
	var configs []table.ColumnConfig
	for _, name := range rows.Right {
		configs = append(configs, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	if last := len(rows.Header); p.screen.Width > 0 && last > 0 {
		// Only the last column wraps: it is the one with the long text.
		configs = append(configs, table.ColumnConfig{
			Number: last, WidthMax: max(20, p.screen.Width-widthBefore(rows, last-1)), WidthMaxEnforcer: text.WrapSoft,
		})
	}
	return configs
}

// widthBefore is how many columns of the screen the first n columns of the table take.
func widthBefore(rows Rows, n int) int {
	total := 0
	for c := range n {
		width := text.StringWidth(rows.Header[c])
		for _, cells := range rows.Cells {
			width = max(width, text.StringWidth(cells[c]))
		}
		total += width + 2
	}
	return total
}

func toRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}
