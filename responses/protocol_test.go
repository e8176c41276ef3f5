package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/responses"
)

func TestProtocol_Conformance(t *testing.T) {
	llmhttptest.TestProtocol(t, responses.New(nil), llmhttptest.ProtocolOptions{
		Path: "/v1/responses",
		Request: func(stream bool, _ int) []byte {
			return fmt.Appendf(nil, `{"model":"m","stream":%v,"input":"Hi"}`, stream)
		},
		Authorize: func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
		ReadWhole: func(body []byte) (*llm.ChatResponse, error) {
			var r object
			if err := json.Unmarshal(body, &r); err != nil {
				return nil, err
			}
			return chatResponse(r)
		},
		ReadStream: func(events []llmhttptest.Event) (*llm.ChatResponse, error) {
			r, err := accumulate(events)
			if err != nil {
				return nil, err
			}
			return chatResponse(r)
		},
		ReadError: func(body []byte) (string, error) {
			var e struct {
				Error struct{ Message, Type string }
			}
			err := json.Unmarshal(body, &e)
			if err == nil && e.Error.Type == "" {
				err = errors.New("no error object")
			}
			return e.Error.Message, err
		},
		EndsCleanly: true,
		ReadFailure: func(events []llmhttptest.Event) (string, error) {
			r, err := accumulate(events)
			if err != nil {
				return "", err
			}
			if r["status"] != "failed" {
				return "", errors.New("the response has not failed")
			}
			return r["error"].(object)["message"].(string), nil
		},
	})
}

func TestProtocol_Routes(t *testing.T) {
	s := newServer(t, nil, chunkText)
	status, _ := s.send("acme", "GET", "/v1/responses", "", "Upgrade", "websocket", "Connection", "Upgrade")
	assert.Equal(t, 426, status)
	resp, err := http.Get(s.url + "/v1/responses")
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 405, resp.StatusCode)
	assert.Equal(t, "POST", resp.Header.Get("Allow"))
	status, _ = s.send("acme", "POST", "/v1/responses", `{"model":"m","input":"Hi"}`, "Content-Encoding", "zstd")
	assert.Equal(t, 415, status)
	e := s.requireRefused(404, "POST", "/v1/conversations", `{}`)
	assert.Contains(t, e.Message, "POST /v1/responses,")
	assert.NotContains(t, e.Message, "GET /v1/responses,", "it is only for requests to upgrade")
	s.requireRefused(400, "POST", "/v1/responses/resp_1/cancel", "")
	s.requireRefused(404, "GET", "/v1/responses/resp_1", "")
	s.requireRefused(404, "DELETE", "/v1/responses/resp_1", "")
	s.requireRefused(404, "GET", "/v1/responses/resp_1/input_items", "")
	status, _ = s.send("acme", "PUT", "/v1/responses", "{}")
	assert.Equal(t, 405, status)
}

func TestCountTokens(t *testing.T) {
	s := newServer(t, nil)
	r := s.ask("acme", "POST", "/v1/responses/input_tokens", `{"model":"m","instructions":"Be kind.","input":"Hi there"}`)
	assert.Equal(t, object{"object": "response.input_tokens", "input_tokens": 12.0}, r)
	assert.Nil(t, s.request)
	e := s.requireRefused(400, "POST", "/v1/responses/input_tokens", `{"input":1}`)
	assert.Equal(t, "input", e.Param)
	e = s.requireRefused(400, "POST", "/v1/responses/input_tokens", `null`)
	assert.Equal(t, "invalid_type", e.Code)
}
