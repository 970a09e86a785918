package openapi

const (
	anyValue = "Any JSON value; its very text is the payload, byte for byte. `null` is the payload of those four bytes."
	anyBytes = "The payload in base64, where it is not JSON. With neither form the message is a tombstone."
)

// rewriteMessages gives messages the mapping that internal/wirejson has for them.
func rewriteMessages(definitions *object) {
	for _, name := range []string{"Message", "StoredMessage"} {
		definition, ok := definitions.get(name).(*object)
		if !ok {
			continue
		}
		old := definition.child("properties")
		fresh := &object{}
		for _, p := range old.members {
			switch p.name {
			case "key":
				fresh.set("key", obj("type", "string", "description", keyText(old)))
				fresh.set("keyBase64", obj("type", "string", "format", "byte", "description", "The key in base64, where it is not UTF-8."))
			case "value":
				fresh.set("value", obj("description", anyValue))
				fresh.set("valueBase64", obj("type", "string", "format", "byte", "description", anyBytes))
			case "headers":
				fresh.set("headers", obj("type", "object", "additionalProperties", obj("type", "string"), "description", headersText(old)))
				fresh.set("headerList", obj("type", "array", "items", ref("Header"), "description",
					"All headers, where the object cannot hold them: a repeated name, a null or a value that is not UTF-8. A request has one form or the other."))
			case "keyBase64", "valueBase64", "headerList": // written with the form that they stand in for
			default:
				fresh.set(p.name, p.value)
			}
		}
		definition.set("properties", fresh)
	}
	if header, ok := definitions.get("Header").(*object); ok {
		header.set("properties", obj(
			"key", obj("type", "string", "description", "The header's name."),
			"value", obj("type", "string", "description", "The header's value, where it is UTF-8. With neither form it is null."),
			"valueBase64", obj("type", "string", "format", "byte", "description", "The header's value in base64, where it is not UTF-8."),
		))
		header.set("required", []any{"key"})
	}
}

func keyText(properties *object) string     { return properties.child("key").text("description") }
func headersText(properties *object) string { return properties.child("headers").text("description") }

func ref(name string) *object { return obj("$ref", "#/definitions/"+name) }

// rewriteErrors puts google.rpc.Status into the suite's words and gives every operation its error.
func rewriteErrors(root, definitions *object) {
	definitions.remove("Status")
	definitions.remove("Any")
	definitions.set("ErrorStatus", obj(
		"type", "object",
		"properties", obj(
			"code", obj("type", "integer", "format", "int32", "description", "The gRPC code, such as 3 for INVALID_ARGUMENT."),
			"message", obj("type", "string", "description", "What happened, for people: operation, identity and cause."),
			"details", obj("type", "array", "items", ref("ErrorDetail"), "description", "The first is a google.rpc.ErrorInfo."),
		),
		"description", "ErrorStatus is google.rpc.Status in JSON.",
	))
	definitions.set("ErrorDetail", obj(
		"type", "object",
		"properties", obj(
			"@type", obj("type", "string", "example", "type.googleapis.com/google.rpc.ErrorInfo"),
			"reason", obj("type", "string", "description", "ErrorInfo: what happened, for programs.", "example", "CHANNEL_NOT_FOUND"),
			"domain", obj("type", "string", "description", "ErrorInfo: `databus`."),
			"metadata", obj("type", "object", "additionalProperties", obj("type", "string"),
				"description", "ErrorInfo: `retryable` (true or false), `nextStep`, `field`, `line`, `column` and other facts."),
			"fieldViolations", obj("type", "array", "items", obj("type", "object", "additionalProperties", true), "description", "BadRequest: each offending field."),
			"retryDelay", obj("type", "string", "format", "duration", "description", "RetryInfo: how long to wait."),
		),
		"additionalProperties", true,
		"description", "ErrorDetail is a detail of an error; its `@type` tells which fields it has.",
	))
	renameRefs(root, "#/definitions/Status", "#/definitions/ErrorStatus")
	renameRefs(root, "#/definitions/Any", "#/definitions/ErrorDetail")
	for _, path := range root.child("paths").members {
		for _, operation := range path.value.(*object).members {
			operation.value.(*object).child("responses").set("default", obj("description", "An error.", "schema", ref("ErrorStatus")))
		}
	}
}

func renameRefs(v any, from, to string) {
	switch v := v.(type) {
	case *object:
		if v.text("$ref") == from {
			v.set("$ref", to)
		}
		for _, m := range v.members {
			renameRefs(m.value, from, to)
		}
	case []any:
		for _, item := range v {
			renameRefs(item, from, to)
		}
	}
}
