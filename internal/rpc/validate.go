package rpc

import (
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/databus-suite/databus/internal/errs"
)

// validator checks messages by the rules in their proto, and costs a map lookup where there are none. Its methods
// may run concurrently.
type validator struct {
	rules protovalidate.Validator
	skip  map[string]bool
	ruled sync.Map // protoreflect.FullName → bool: whether the message, or one inside it, has rules
}

func newValidator(skip []string) (*validator, error) {
	rules, err := protovalidate.New()
	if err != nil {
		return nil, err
	}
	v := &validator{rules: rules, skip: make(map[string]bool, len(skip))}
	for _, method := range skip {
		v.skip[method] = true
	}
	return v, nil
}

func (v *validator) skips(method string) bool { return v.skip[method] }

func (v *validator) validate(msg proto.Message) error {
	desc := msg.ProtoReflect().Descriptor()
	ruled, known := v.ruled.Load(desc.FullName())
	if !known {
		ruled = hasRules(desc, map[protoreflect.FullName]bool{})
		v.ruled.Store(desc.FullName(), ruled)
	}
	if ruled != true {
		return nil
	}
	if err := v.rules.Validate(msg); err != nil {
		return errs.FromValidation(err)
	}
	return nil
}

// hasRules looks at a message and at all that it can contain.
func hasRules(desc protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[desc.FullName()] {
		return false
	}
	seen[desc.FullName()] = true
	if proto.HasExtension(desc.Options(), validate.E_Message) {
		return true
	}
	for i := range desc.Oneofs().Len() {
		if proto.HasExtension(desc.Oneofs().Get(i).Options(), validate.E_Oneof) {
			return true
		}
	}
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		if proto.HasExtension(field.Options(), validate.E_Field) {
			return true
		}
		if m := field.Message(); m != nil && hasRules(m, seen) {
			return true
		}
	}
	return false
}
