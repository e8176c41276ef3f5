package upstream_test

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/upstream"
)

// The server counts the tokens of a prompt if Options.TokenizePath is set.
func TestCountTokens(t *testing.T) {
	const ask = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"tools":[{"name":"f","input_schema":{}}]}`
	const estimate = `{"input_tokens":8}`
	for name, test := range map[string]struct {
		path   string
		status int
		reply  string
		code   int
		want   string // the reply to the client, if it is a 200
	}{
		"counted":             {"/tokenize", 200, `{"count":1234,"max_model_len":8192,"tokens":[1,2],"token_strs":null}`, 200, `{"input_tokens":1234}`},
		"zero":                {"/tokenize", 200, `{"count":0}`, 200, `{"input_tokens":0}`},
		"another path":        {"/api/tokenize", 200, `{"count":7}`, 200, `{"input_tokens":7}`},
		"not configured":      {"", 200, `{"count":7}`, 200, estimate},
		"no such endpoint":    {"/tokenize", 404, `{"detail":"Not Found"}`, 200, estimate},
		"the server fails":    {"/tokenize", 500, `{"error":{"message":"boom"}}`, 502, ""},
		"the prompt is wrong": {"/tokenize", 400, `{"error":{"message":"too long"}}`, 400, ""},
		"an error with 200":   {"/tokenize", 200, `{"error":{"message":"boom"}}`, 502, ""},
		"no count":            {"/tokenize", 200, `{"tokens":[1]}`, 502, ""},
		"negative":            {"/tokenize", 200, `{"count":-1}`, 502, ""},
		"malformed":           {"/tokenize", 200, `{"count":"x"}`, 502, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, test.status, mediaJSON, test.reply) })
			g := newGateway(t, s.url(), &upstream.Options{TokenizePath: test.path, Models: map[string]string{"m": "vendor/m"}},
				func(o *llmhttp.Options) { o.Protocols = []llmhttp.Protocol{messages.New(nil)} })
			r := g.do("POST", "/v1/messages/count_tokens", ask)
			require.Equal(t, test.code, r.StatusCode, "%s", r.body)
			if test.code == 200 {
				assert.JSONEq(t, test.want, r.body)
			}
			if test.path == "" {
				return
			}
			assert.Equal(t, test.path, s.last().URL.Path)
			assert.Equal(t, "Bearer "+serverKey, s.last().Header.Get("Authorization"))
			assert.JSONEq(t, `{"model":"vendor/m","messages":[{"role":"user","content":"Hello?"}],
				"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}`, s.last().body)
		})
	}
	_, err := newBackend(t, "http://upstream.test/v1", nil).CountTokens(t.Context(), &llm.ChatRequest{Model: "m"})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = upstream.New("http://upstream.test/v1", &upstream.Options{TokenizePath: "tokenize"})
	assert.EqualError(t, err, `upstream: Options.TokenizePath must begin with "/"`)
}
