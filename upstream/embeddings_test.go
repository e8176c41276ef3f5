package upstream_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEmbeddings(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"floats", `{"object":"list","data":[{"object":"embedding","index":1,"embedding":[3,4.5]},{"index":0,"embedding":[1,-2e-3]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3,"x":1},"y":2}`, 200,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-0.002]},{"object":"embedding","index":1,"embedding":[3,4.5]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3,"x":1},"y":2}`},
		{"base64", `{"data":[{"embedding":"AACAPw=="},{"embedding":"AAAAQA=="}],"usage":{"prompt_tokens":3}}`, 200,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]},{"object":"embedding","index":1,"embedding":[2]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		{"one missing", `{"data":[{"index":1,"embedding":[1]}]}`, 502, ``},
		{"none", `{"data":[]}`, 502, ``},
		{"null", `{"data":[{"embedding":null},{"embedding":null}]}`, 502, ``},
		{"an error", `{"error":{"message":"boom"}}`, 502, ``},
		{"too few", `{"data":[{"embedding":[1]}]}`, 502, ``},
		{"too many", `{"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]}`, 502, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			s := newRawServer(t, func(conn net.Conn, r *rawRequest) { whole(conn, 200, "application/json", c.body) })
			g := newGateway(t, s.url(), nil)
			a := g.do("POST", "/v1/embeddings", `{"model":"m","input":["a","b"]}`)
			require.Equal(t, c.status, a.StatusCode, "%s", a.body)
			if c.want != "" {
				assert.Equal(t, c.want, a.body)
				assert.EqualValues(t, 3, g.used(1).PromptTokens)
			}
		})
	}
}

// As many vectors are expected as there are inputs, in all their forms.
func TestEmbeddingInputs(t *testing.T) {
	noLeaks(t)
	for input, n := range map[string]int{`"a"`: 1, `["a"]`: 1, `["a","b","c"]`: 3, `[1,2,3]`: 1, `[[1,2],[3]]`: 2} {
		for vectors := 1; vectors <= 3; vectors++ {
			list := strings.TrimSuffix(strings.Repeat(`{"embedding":[1]},`, vectors), ",")
			s := newRawServer(t, func(c net.Conn, _ *rawRequest) { whole(c, 200, "application/json", `{"data":[`+list+`]}`) })
			status := http.StatusBadGateway
			if vectors == n {
				status = http.StatusOK
			}
			a := newGateway(t, s.url(), nil).do("POST", "/v1/embeddings", `{"model":"m","input":`+input+`}`)
			assert.Equal(t, status, a.StatusCode, "%s: %d vectors: %s", input, vectors, a.body)
		}
	}
}
