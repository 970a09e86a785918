package openapi

import "slices"

// rewritePaths says of each path what only its service knows.
func rewritePaths(paths *object) {
	for _, path := range paths.members {
		for _, m := range path.value.(*object).members {
			operation := m.value.(*object)
			if m.name == "patch" {
				addParameter(operation, obj("name", "updateMask", "in", "query", "required", false, "type", "string",
					"description", "The config fields to change, such as `batch.linger,keyPath`; may stand in the body instead."))
			}
			for _, p := range parameters(operation) {
				if name := p.text("name"); p.text("in") == "query" && name == "wait" {
					p.set("format", "duration")
				}
			}
		}
	}
	publish := paths.child("/v1/channels/{channel}/messages").child("post")
	publishResponses(publish, "PublishResponse")
	events := paths.child("/v1/channels/{channel}/events").child("post")
	publishResponses(events, "PublishEventsResponse")
	rawBody(events)
}

func parameters(operation *object) []*object {
	list, _ := operation.get("parameters").([]any)
	out := make([]*object, 0, len(list))
	for _, p := range list {
		out = append(out, p.(*object))
	}
	return out
}

func addParameter(operation, parameter *object) {
	list, _ := operation.get("parameters").([]any)
	if !slices.ContainsFunc(parameters(operation), func(p *object) bool {
		return p.text("name") == parameter.text("name") && p.text("in") == parameter.text("in")
	}) {
		operation.set("parameters", append(list, parameter))
	}
}

// publishResponses are the statuses of a publish. They stand in the order of their codes.
func publishResponses(operation *object, answer string) {
	if len(operation.members) == 0 {
		return
	}
	retry := obj("Retry-After", obj("type", "integer", "description", "Seconds to wait."))
	operation.set("responses", obj(
		"200", obj("description", "Every message reached the durability that its channel promises.", "schema", ref(answer)),
		"202", obj("description", "The channel is buffered: the messages are in the agent's memory.", "schema", ref(answer)),
		"207", obj("description", "Some messages did; each result tells.", "schema", ref(answer)),
		"413", obj("description", "The body or a message is past its size limit.", "schema", ref("ErrorStatus")),
		"415", obj("description", "The content type or encoding is not taken.", "schema", ref("ErrorStatus")),
		"429", obj("description", "Back-pressure: the channel's rate or memory is used up.", "headers", retry, "schema", ref("ErrorStatus")),
		"503", obj("description", "The brokers cannot be reached, or the channel is paused.", "headers", retry, "schema", ref("ErrorStatus")),
		"default", obj("description", "An error.", "schema", ref("ErrorStatus")),
	))
}

// rawBody: the body of events is the payload itself, and what goes with it stands in headers.
func rawBody(operation *object) {
	if len(operation.members) == 0 {
		return
	}
	operation.set("consumes", []any{"application/json", "application/x-ndjson", "application/cloudevents+json",
		"application/cloudevents-batch+json", "application/octet-stream", "text/plain"})
	var list []any
	for _, p := range parameters(operation) {
		switch {
		case p.text("in") == "body":
			list = append(list, obj("name", "body", "in", "body", "required", true, "description", "The payload, of any content type.", "schema", obj()))
		case p.text("in") == "path":
			list = append(list, p)
		}
	}
	for _, h := range [][2]string{
		{"Databus-Key", "Key of every message in the body. Absent: the channel's key path decides."},
		{"Databus-Id", "Id of the message, which makes a repeat recognisable. `Idempotency-Key` is taken as well."},
		{"Databus-Lane", "Lane of every message in the body."},
	} {
		list = append(list, obj("name", h[0], "in", "header", "required", false, "type", "string", "description", h[1]))
	}
	operation.set("parameters", list)
}
