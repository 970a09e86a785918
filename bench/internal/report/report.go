// Package report prints benchmark figures as a Markdown table and gives the
// medians that ratios are made of.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Median of some figures; 0 where there are none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// Spread is the least and the most of some figures.
func Spread(v []float64) (lo, hi float64) { return slices.Min(v), slices.Max(v) }

// Ratio writes the median of a/b pair by pair, with its spread, in percent.
func Ratio(a, b []float64) string {
	r := make([]float64, min(len(a), len(b)))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	if len(r) == 0 {
		return "not measured"
	}
	lo, hi := Spread(r)
	return fmt.Sprintf("%.0f %% (%.0f to %.0f)", 100*Median(r), 100*lo, 100*hi)
}

// Table collects rows and prints them aligned.
type Table struct {
	Head []string
	rows [][]string
}

// Row adds one row.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch v := c.(type) {
		case float64:
			row[i] = Number(v)
		default:
			row[i] = fmt.Sprint(v)
		}
	}
	t.rows = append(t.rows, row)
}

// Print writes the table as Markdown.
func (t *Table) Print(w io.Writer) {
	width := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.rows...) {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	line := func(row []string) {
		for i, c := range row {
			fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(" ", width[i]-len([]rune(c))))
		}
		fmt.Fprintln(w, "|")
	}
	line(t.Head)
	dashes := make([]string, len(width))
	for i, n := range width {
		dashes[i] = strings.Repeat("-", n)
	}
	line(dashes)
	for _, row := range t.rows {
		line(row)
	}
}

// Number writes a figure with three significant digits at least.
func Number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
