package llmhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

// The format of ExampleProtocol passes the kit. It has no whole replies, so the kit gets
// streams in their place. The test is not beside the example, because go doc shows the whole
// file of an example only if it has no tests.
func TestProtocol_ExampleIsCorrect(t *testing.T) {
	t.Parallel()
	opts := llmhttptest.ProtocolOptions{
		Path:       "/lines",
		Request:    func(bool, int) []byte { return []byte(`{"model":"m","prompt":"Hi"}`) },
		Authorize:  func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
		WholeType:  "application/x-ndjson",
		StreamType: "application/x-ndjson",
		Split:      llmhttptest.SplitJSONLines,
		TextOnly:   true,
		ReadStream: readLines,
	}
	opts.ReadWhole = func(body []byte) (*llm.ChatResponse, error) {
		events, err := opts.Split(body, false)
		if err != nil {
			return nil, err
		}
		return readLines(events)
	}
	opts.ReadError = func(body []byte) (string, error) {
		var e struct{ Error string }
		err := json.Unmarshal(body, &e)
		return e.Error, err
	}
	opts.ReadFailure = func(events []llmhttptest.Event) (string, error) {
		if len(events) == 0 {
			return "", errors.New("the stream has no lines")
		}
		return opts.ReadError([]byte(events[len(events)-1].Data))
	}
	llmhttptest.TestProtocol(t, lines{}, opts)
}

// readLines is what a client does with the lines of a reply.
func readLines(events []llmhttptest.Event) (*llm.ChatResponse, error) {
	var text strings.Builder
	for i, e := range events {
		var line struct {
			Text string
			Done bool
		}
		if err := json.Unmarshal([]byte(e.Data), &line); err != nil {
			return nil, err
		}
		text.WriteString(line.Text)
		if line.Done != (i == len(events)-1) {
			return nil, fmt.Errorf("line %d of %d is the end: %t", i+1, len(events), line.Done)
		}
	}
	if len(events) == 0 {
		return nil, errors.New("there are no lines")
	}
	return join.Collect(llm.Reply(text.String()))
}
