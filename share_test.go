package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// imageAsk is a chat about an image whose address is the given JSON text.
func imageAsk(url string) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is \"this\"?"},{"type":"image_url","image_url":{"url":"%s","detail":"low"},"x":[1]}]}],"seed":7}`, url)
}

// What a Backend keeps of a request stays as it was, whatever comes after it.
func TestLongTextsAreKept(t *testing.T) {
	var kept []string
	var pieces [][]byte
	b := llmhttp.BackendFunc(func(_ context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
		kept = append(kept, req.Messages[0].Content[1].ImageURL.URL)
		buffers, err := req.Buffers()
		if err != nil {
			return llmhttp.Fail(err)
		}
		pieces = append(pieces, bytes.Join(buffers, nil))
		return llmhttp.Reply("ok")
	})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil)
	var want []string
	for i := range 60 {
		// Images, some of which make up most of their requests' memory.
		url := "data:image/png;base64," + strings.Repeat(string(rune('A'+i%26)), 20_000+i*17_000)
		body := imageAsk(url)
		if i%3 == 1 {
			body = imageAsk(strings.ReplaceAll(url, "/", `\/`))
		}
		if i%3 == 2 {
			url += "é"
			body = imageAsk(url)
		}
		want = append(want, url)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	}
	assert.True(t, slices.Equal(want, kept), "the images are as they were")
	for i, text := range pieces {
		assert.JSONEq(t, imageAsk(want[i]), string(text))
	}
}

// Buffers has the bytes of MarshalJSON, and does not copy what is large, also
// of a copy of the request that says something else beside it.
func TestBuffers(t *testing.T) {
	url := "data:image/png;base64," + strings.Repeat("QUJD", 50_000)
	for name, test := range map[string]struct {
		body   string
		pieces int
	}{
		"large":   {imageAsk(url), 3},
		"escaped": {imageAsk(url + `\n`), 1},
		"small":   {imageAsk("data:image/png;base64,QUJD"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := llmhttp.BackendFunc(func(_ context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
				changed := *req
				changed.Model = "another"
				changed.Messages = append([]llmhttp.Message{{Role: llmhttp.RoleSystem, Content: llmhttp.Text("Be brief.")}}, req.Messages...)
				for _, r := range []*llmhttp.ChatRequest{req, &changed} {
					want, err := json.Marshal(r)
					require.NoError(t, err)
					buffers, err := r.Buffers()
					require.NoError(t, err)
					assert.Equal(t, string(want), string(bytes.Join(buffers, nil)))
					assert.Len(t, buffers, test.pieces)
				}
				// A text that is not the very one is read.
				changed.Messages[1].Content = llmhttp.Text(strings.Repeat("\"", len(url)))
				buffers, err := changed.Buffers()
				require.NoError(t, err)
				assert.True(t, json.Valid(bytes.Join(buffers, nil)))
				return llmhttp.Reply("ok")
			})
			w := httptest.NewRecorder()
			llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil).ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(test.body)))
			require.Equal(t, http.StatusOK, w.Code, w.Body)
		})
	}
	_, err := (&llmhttp.ChatRequest{ToolChoice: json.RawMessage("{")}).Buffers()
	assert.Error(t, err)
}
