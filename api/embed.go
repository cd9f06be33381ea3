// Package api is the published contract of the HTTP API. It owns the document and nothing that serves it.
package api

import _ "embed"

// OpenAPI is openapi.yaml, which the tests of the server hold against what it does.
//
//go:embed openapi.yaml
var OpenAPI []byte
