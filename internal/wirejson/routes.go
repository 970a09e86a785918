package wirejson

import (
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// bodylessRoutes maps "GET /v1/topics/{topic=*}", as the gateway writes a pattern, to its request, for every route without a
// body that is linked into the program.
func bodylessRoutes() map[string]protoreflect.MessageType {
	routes := map[string]protoreflect.MessageType{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				addRoutes(routes, methods.Get(j))
			}
		}
		return true
	})
	return routes
}

func addRoutes(routes map[string]protoreflect.MessageType, method protoreflect.MethodDescriptor) {
	rule, ok := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil {
		return
	}
	request, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return // only a descriptor: there is no handler for it either
	}
	for _, r := range append(rule.GetAdditionalBindings(), rule) {
		verb, template := verbOf(r)
		if r.GetBody() == "" && template != "" {
			routes[verb+" "+strings.NewReplacer("}", "=*}").Replace(template)] = request
		}
	}
}

func verbOf(rule *annotations.HttpRule) (verb, template string) {
	switch {
	case rule.GetGet() != "":
		return http.MethodGet, rule.GetGet()
	case rule.GetDelete() != "":
		return http.MethodDelete, rule.GetDelete()
	case rule.GetPost() != "":
		return http.MethodPost, rule.GetPost()
	case rule.GetPut() != "":
		return http.MethodPut, rule.GetPut()
	case rule.GetPatch() != "":
		return http.MethodPatch, rule.GetPatch()
	}
	return rule.GetCustom().GetKind(), rule.GetCustom().GetPath()
}
