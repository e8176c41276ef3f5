package upstream_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEmbed(t *testing.T) {
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"floats", `{"object":"list","data":[{"object":"embedding","index":1,"embedding":[3,4.5]},{"index":0,"embedding":[1,-2e-3]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3,"x":1},"y":2}`, 200,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-0.002]},{"object":"embedding","index":1,"embedding":[3,4.5]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3,"x":1},"y":2}`},
		{"base64", `{"data":[{"embedding":"AACAPw=="},{"embedding":"AAAAQA=="}],"usage":{"prompt_tokens":3}}`, 200,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]},{"object":"embedding","index":1,"embedding":[2]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}`},
		{"vector missing", `{"data":[{"index":1,"embedding":[1]}]}`, 502, ``},
		{"no vectors", `{"data":[]}`, 502, ``},
		{"null vectors", `{"data":[{"embedding":null},{"embedding":null}]}`, 502, ``},
		{"error", `{"error":{"message":"boom"}}`, 502, ``},
		{"flat error", `{"object":"error","message":"boom","code":400}`, 400, ``},
		{"too few vectors", `{"data":[{"embedding":[1]}]}`, 502, ``},
		{"too many vectors", `{"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]}`, 502, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			g := newGateway(t, s.url(), nil)
			got := g.do("POST", "/v1/embeddings", `{"model":"m","input":["a","b"]}`)
			require.Equal(t, test.status, got.StatusCode, "%s", got.body)
			if test.want != "" {
				assert.Equal(t, test.want, got.body)
				assert.EqualValues(t, 3, g.recordedUsage(1).Units.PromptTokens)
			}
		})
	}
}

// A reply must have one vector for each input, for all types of inputs.
func TestEmbed_NumberOfVectors(t *testing.T) {
	checkLeaks(t)
	for input, n := range map[string]int{`"a"`: 1, `["a"]`: 1, `["a","b","c"]`: 3, `[1,2,3]`: 1, `[[1,2],[3]]`: 2} {
		for vectors := 1; vectors <= 3; vectors++ {
			list := strings.TrimSuffix(strings.Repeat(`{"embedding":[1]},`, vectors), ",")
			s := newRawServer(t, func(c net.Conn, _ *rawRequest) { writeReply(c, 200, mediaJSON, `{"data":[`+list+`]}`) })
			status := http.StatusBadGateway
			if vectors == n {
				status = http.StatusOK
			}
			got := newGateway(t, s.url(), nil).do("POST", "/v1/embeddings", `{"model":"m","input":`+input+`}`)
			assert.Equal(t, status, got.StatusCode, "%s: %d vectors: %s", input, vectors, got.body)
		}
	}
}
