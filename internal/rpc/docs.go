package rpc

import (
	_ "embed"
	"net/http"
)

//go:embed docs.html
var docsPage []byte

// serveDocs serves a page that lists the operations of /openapi.json and lets one try them.
func serveDocs(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	w.Write(docsPage)
}
