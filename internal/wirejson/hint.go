package wirejson

import (
	"strings"

	"github.com/databus-suite/databus/internal/nearest"
)

func duplicateFault(at int) *fault {
	return &fault{at: at, reason: ReasonDuplicate, what: "is given twice"}
}

// unknownFault refuses a name and says which one may be meant.
func unknownFault(at int, name string, known []string) *fault {
	f := &fault{at: at, reason: ReasonUnknown, what: "there is no such field"}
	if near := nearest.Word(name, known); near != "" {
		f.what += "; did you mean " + near + "?"
		f.next = "use " + near
	} else if len(known) > 0 && len(known) <= 16 {
		f.next = "the fields are " + strings.Join(known, ", ")
	}
	return f
}
