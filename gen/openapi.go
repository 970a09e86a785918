// Package gen holds what is generated from proto/: Go code under go/, and the OpenAPI document, which it embeds.
package gen

import _ "embed"

// OpenAPI is the document of every service's REST API (OpenAPI 2.0, JSON).
//
//go:embed openapi/databus.swagger.json
var OpenAPI []byte
