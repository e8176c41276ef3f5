package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/responses"
)

func TestProtocol(t *testing.T) {
	llmhttptest.TestProtocol(t, responses.New(nil), llmhttptest.ProtocolOptions{
		Path: "/v1/responses",
		Request: func(stream bool, _ int) []byte {
			return fmt.Appendf(nil, `{"model":"m","stream":%v,"input":"Hi"}`, stream)
		},
		Authorize: func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
		ReadWhole: func(body []byte) (*llmhttp.ChatResponse, error) {
			var r object
			if err := json.Unmarshal(body, &r); err != nil {
				return nil, err
			}
			return chatResponse(r)
		},
		ReadStream: func(events []llmhttptest.Event) (*llmhttp.ChatResponse, error) {
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
