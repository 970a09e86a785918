// Package nearest finds the word that somebody may have meant: a field, a config key or a command that a typing
// error away from the one that does not exist. It knows nothing of where the words come from.
package nearest

import "strings"

// maxWord bounds the work that a word from outside can cause.
const maxWord = 64

// Word returns the known word that word is most likely meant to be, and nothing where none is near: at most two
// letters inserted, dropped, changed or swapped with their neighbour, and fewer in a short word. Case and
// underscores do not count. Of equally near words it returns the first.
func Word(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	plain := fold(word)
	best, bound := "", 1+min(2, len(plain)/3)
	for _, k := range known {
		if d := distance(plain, fold(k)); d < bound {
			best, bound = k, d
		}
	}
	return best
}

func fold(word string) string { return strings.ToLower(strings.ReplaceAll(word, "_", "")) }

// distance is the number of edits between a and b, where swapping neighbours is one (optimal string alignment).
func distance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return 3 // more than any caller accepts
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
