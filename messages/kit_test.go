package messages_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/messages"
)

func TestProtocol(t *testing.T) {
	for name, authorize := range map[string]func(r *http.Request, secret string){
		"x-api-key": func(r *http.Request, secret string) { r.Header.Set("X-Api-Key", secret) },
		"bearer":    func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
		"both": func(r *http.Request, secret string) {
			r.Header.Set("X-Api-Key", secret)
			r.Header.Set("Authorization", "Bearer sk-of-another-service")
		},
	} {
		t.Run(name, func(t *testing.T) {
			llmhttptest.TestProtocol(t, messages.New(nil), llmhttptest.ProtocolOptions{
				Path: "/v1/messages?beta=true",
				Request: func(stream bool, _ int) []byte {
					return fmt.Appendf(nil, `{"model":"m","max_tokens":100,"stream":%v,"messages":[{"role":"user","content":"Hi"}]}`, stream)
				},
				Authorize: authorize,
				ReadWhole: func(body []byte) (*llmhttp.ChatResponse, error) {
					m, err := readMessage(body)
					if err != nil {
						return nil, err
					}
					return m.response(), nil
				},
				ReadStream: func(events []llmhttptest.Event) (*llmhttp.ChatResponse, error) {
					m, err := readStream(events)
					if err != nil {
						return nil, err
					}
					return m.response(), nil
				},
				ReadError: func(body []byte) (string, error) {
					_, text, err := readError(body)
					return text, err
				},
				ReadFailure: func(events []llmhttptest.Event) (string, error) {
					if len(events) == 0 || events[len(events)-1].Name != "error" {
						return "", errors.New("the stream does not end with an error event")
					}
					_, text, err := readError([]byte(events[len(events)-1].Data))
					return text, err
				},
			})
		})
	}
}
