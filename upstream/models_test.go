package upstream_test

import (
	"encoding/json"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/upstream"
)

func TestListModels(t *testing.T) {
	for _, test := range []struct {
		name, body string
		models     map[string]string
		want       string
	}{
		{"list", `{"object":"list","data":[{"id":"b","object":"model","created":5,"owned_by":"x","meta":{"n":1}},{"id":"org/a"}]}`, nil,
			`[{"id":"b","object":"model","created":5,"owned_by":"x","meta":{"n":1}},{"id":"org/a","object":"model","created":0,"owned_by":""}]`},
		{"entries of other types", `{"data":["x",{"id":"a","created":"2024-01-01T00:00:00Z","owned_by":{"n":1},"meta":2},5,{"id":7},{"id":"b"}]}`, nil,
			`[{"id":"a","object":"model","created":0,"owned_by":"","meta":2},{"id":"b","object":"model","created":0,"owned_by":""}]`},
		{"members that tell the name of another model", `{"data":[{"id":"vendor/a","root":"/models/a","parent":"vendor/base","about":"vendor/a, large","n":["vendor/a"],"path":"/srv/vendor/a/w"},{"id":"b","root":"b","parent":"vendor/a","like":"vendor/a-2","best":"c"}]}`,
			map[string]string{"a": "vendor/a", "small": "vendor/a", "c": "c"},
			`[{"id":"a","object":"model","created":0,"owned_by":"","about":"a, large"},{"id":"small","object":"model","created":0,"owned_by":"","about":"small, large"},` +
				`{"id":"b","object":"model","created":0,"owned_by":"","best":"c","like":"vendor/a-2","root":"b"},{"id":"c","object":"model","created":0,"owned_by":""}]`},
		{"array without an object", `[{"id":"a","created":1.5}]`, nil, `[{"id":"a","object":"model","created":1,"owned_by":""}]`},
		{"null", `{"data":null}`, nil, `[]`},
		{"empty", `{"object":"list","data":[],"error":null}`, nil, `[]`},
		{"duplicate and empty names", `{"data":[{"id":"a"},{"id":""},{"id":"a","owned_by":"x"}]}`, nil, `[{"id":"a","object":"model","created":0,"owned_by":""}]`},
		{"other names", `{"data":[{"id":"vendor/a","created":5},{"id":"c","created":6},{"id":"b"}]}`,
			map[string]string{"a": "vendor/a", "small": "vendor/a", "c": "b", "unlisted": "vendor/x"},
			`[{"id":"a","object":"model","created":5,"owned_by":""},{"id":"small","object":"model","created":5,"owned_by":""},{"id":"c","object":"model","created":0,"owned_by":""},{"id":"unlisted","object":"model","created":0,"owned_by":""}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			list, err := newBackend(t, s.url(), &upstream.Options{Models: test.models}).ListModels(t.Context())
			require.NoError(t, err)
			got, err := json.Marshal(append([]llmhttp.Model{}, list...))
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
			assert.Equal(t, "GET", s.last().Method)
			assert.Empty(t, s.last().body)
			assert.Empty(t, s.last().Header["Content-Type"])
		})
	}
}

func TestListModels_InvalidReply(t *testing.T) {
	for _, body := range []string{``, `{}x`, `"a"`, `{"data":5}`, `{"data":["a"]}`, `{"data":[{"id":1},{"id":2}]}`, `[5]`, `{"error":"no"}`, `{"object":"error","message":"no"}`, `<html>`} {
		t.Run(body, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, body) })
			_, err := newBackend(t, s.url(), nil).ListModels(t.Context())
			var e *llmhttp.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, 502, e.Status)
		})
	}
}
