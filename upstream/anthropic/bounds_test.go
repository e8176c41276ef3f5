// Replies and lists of models that have no end.

package anthropic_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// What is kept of blocks until they end is bounded, whatever it is and however many blocks it is in.
func TestReply_Bounds(t *testing.T) {
	piece := strings.Repeat("a", 1000)
	for name, delta := range map[string]string{
		"thinking":  `{"type":"thinking_delta","thinking":"` + piece + `"}`,
		"signature": `{"type":"signature_delta","signature":"` + piece + `"}`,
		"citations": `{"type":"citations_delta","citation":{"a":"` + piece + `"}}`,
		"input":     `{"type":"input_json_delta","partial_json":"` + piece + `"}`,
	} {
		for _, blocks := range []int{1, 20} {
			t.Run(fmt.Sprint(name, blocks), func(t *testing.T) {
				typ := map[string]string{"thinking": "thinking", "signature": "thinking", "citations": "text", "input": "server_tool_use"}[name]
				list := []string{messageStart}
				for i := range blocks {
					list = append(list, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"%s"}}`, i, typ))
				}
				for i := range 20 {
					list = append(list, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i%blocks, delta))
				}
				_, err := replyTo(t, &anthropic.Options{Server: upstream.Options{MaxEvent: 4000}}, true, events(append(list, messageEnd, messageStop)...))
				assert.ErrorContains(t, err, "too large")
			})
		}
	}
}

// A server whose list has no end.
func TestListModels_Endless(t *testing.T) {
	n := 0
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if n++; n > 10_100 {
			t.Error("too many requests")
			n = 0
			fmt.Fprint(w, `{"data":[]}`)
			return
		}
		fmt.Fprintf(w, `{"data":[{}],"has_more":true,"last_id":"%d"}`, n)
	})
	_, err := newBackend(t, s.URL, nil).ListModels(t.Context())
	require.NoError(t, err)
}
