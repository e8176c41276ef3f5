package llmhttptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

func TestProtocol_ChatCompletions(t *testing.T) { TestProtocol(t, nil, completionOptions) }

var completionOptions = ProtocolOptions{
	Path:    "/v1/chat/completions",
	Choices: 3,
	Request: func(stream bool, choices int) []byte {
		return fmt.Appendf(nil, `{"model":"m","n":%d,"stream":%v,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}`,
			choices, stream)
	},
	Authorize: func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
	ReadWhole: func(body []byte) (*llm.ChatResponse, error) {
		r := new(llm.ChatResponse)
		return r, json.Unmarshal(body, r)
	},
	ReadStream: readCompletionStream,
	ReadError:  readCompletionError,
	ReadFailure: func(events []Event) (string, error) {
		if len(events) == 0 {
			return "", errors.New("the stream has no events")
		}
		return readCompletionError([]byte(events[len(events)-1].Data))
	},
}

// readCompletionStream returns an error for any stream that a known client refuses.
func readCompletionStream(events []Event) (*llm.ChatResponse, error) {
	if n := len(events); n == 0 || events[n-1].Data != "[DONE]" {
		return nil, errors.New("the stream does not end with [DONE]")
	}
	var chunks []*llm.ChatChunk
	ended := make(map[int]bool)
	for i, e := range events[:len(events)-1] {
		c := new(llm.ChatChunk)
		if err := json.Unmarshal([]byte(e.Data), c); err != nil {
			return nil, err
		}
		if c.Extra["error"] != nil || e.Name != "" {
			return nil, fmt.Errorf("event %d has a name or is an error: %s", i, e.Data)
		}
		for _, choice := range c.Choices {
			if ended[choice.Index] {
				return nil, fmt.Errorf("choice %d continues after its end", choice.Index)
			}
			ended[choice.Index] = choice.FinishReason != ""
		}
		if i == 0 && (len(c.Choices) != 1 || c.Choices[0].Index != 0 || c.Choices[0].Delta.Role != llm.RoleAssistant) {
			return nil, fmt.Errorf("the first chunk does not open choice 0: %s", e.Data)
		}
		if c.Usage != nil && i != len(events)-2 {
			return nil, errors.New("the chunk with the usage is not the last")
		}
		chunks = append(chunks, c)
	}
	for index, done := range ended {
		if !done {
			return nil, fmt.Errorf("choice %d has no end", index)
		}
	}
	return join.Collect(streamOf(chunks))
}

func readCompletionError(body []byte) (string, error) {
	var e struct {
		Error *struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return "", err
	}
	if e.Error == nil || e.Error.Message == "" || e.Error.Type == "" {
		return "", fmt.Errorf("not an error object: %s", body)
	}
	return e.Error.Message, nil
}
