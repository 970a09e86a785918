package wirejson

import "strings"

func duplicateFault(at int) *fault {
	return &fault{at: at, reason: ReasonDuplicate, what: "is given twice"}
}

// unknownFault refuses a name and says which one may be meant.
func unknownFault(at int, name string, known []string) *fault {
	f := &fault{at: at, reason: ReasonUnknown, what: "there is no such field"}
	if near := nearest(name, known); near != "" {
		f.what += "; did you mean " + near + "?"
		f.next = "use " + near
	} else if len(known) > 0 && len(known) <= 16 {
		f.next = "the fields are " + strings.Join(known, ", ")
	}
	return f
}

// nearest is the known name that a typing error away, empty where none is near.
func nearest(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	plain := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	best, bestDistance := "", 1+min(2, len(plain)/3)
	for _, k := range known {
		if d := distance(plain, strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, drop, change or swap with their neighbour.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
