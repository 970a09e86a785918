package rpc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/rpc"
	"github.com/databus-suite/databus/internal/wirejson"
)

// TestWithTheSuitesJSON holds the seam between the server and the JSON mapping that every service gives it.
func TestWithTheSuitesJSON(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{}, rpc.WithGatewayOptions(wirejson.GatewayOptions()...), rpc.WithConnectOptions(wirejson.ConnectCodec()))
	const connectPath = "/databus.v1.ChannelService/GetChannel"
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		field, want              string
	}{
		{"malformed", "POST", "/v1/channels", "{\n  \"name\": orders}", 400, "name", "line 2, column 11"},
		{"unknown field", "POST", "/v1/channels", `{"name":"orders","config":{"bacth":{}}}`, 400, "config.bacth", "batch"},
		{"bad value", "POST", "/v1/channels", `{"name":"orders","config":{"batch":{"linger":"soon"}}}`, 400, "config.batch.linger", ""},
		{"a rule", "POST", "/v1/channels", `{"name":"orders","config":{"batch":{"linger":"1h"}}}`, 400, "config.batch.linger", ""},
		{"unknown parameter", "GET", "/v1/channels?pagesize=2", "", 400, "pagesize", "pageSize"},
		{"no path", "GET", "/v1/nowhere", "", 404, "", ""},
		{"no method", "PUT", "/v1/channels", "", 405, "", ""},
		{"service error", "GET", "/v1/channels/missing", "", 404, "channel", "create it"},
		{"fine", "POST", "/v1/channels", `{"name":"orders","config":{"batch":{"linger":"5ms"}}}`, 200, "", `"name":"orders"`},
		{"connect", "POST", connectPath, `{"channel":"orders"}`, 200, "", `"name":"orders"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, f.url(tc.path), strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			res, body := f.send(t, req)
			if res.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
				t.Errorf("%d %s", res.StatusCode, body)
			}
			if res.StatusCode != http.StatusOK {
				if e := errs.From(statusError(t, res, body)); e.Field != tc.field {
					t.Errorf("field %q, want %q in %s", e.Field, tc.field, body)
				}
			}
		})
	}
}
