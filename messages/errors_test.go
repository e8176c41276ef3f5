package messages_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

func TestErrors(t *testing.T) {
	failure := func(status int) error { return llm.Errorf(status, "", "It failed.") }
	tooLong := func(message string) error { return llm.Errorf(400, "context_length_exceeded", "%s", message) }
	for name, test := range map[string]struct {
		err     error
		status  int
		typ     string
		message string
	}{
		"400":       {failure(400), 400, "invalid_request_error", "It failed."},
		"401":       {failure(401), 401, "authentication_error", "It failed."},
		"402":       {failure(402), 402, "billing_error", "It failed."},
		"403":       {failure(403), 403, "permission_error", "It failed."},
		"404":       {failure(404), 404, "not_found_error", "It failed."},
		"409":       {failure(409), 409, "conflict_error", "It failed."},
		"413":       {failure(413), 413, "request_too_large", "It failed."},
		"422":       {failure(422), 422, "invalid_request_error", "It failed."},
		"429":       {failure(429), 429, "rate_limit_error", "It failed."},
		"500":       {failure(500), 500, "api_error", "It failed."},
		"502":       {failure(502), 502, "api_error", "It failed."},
		"503":       {failure(503), 529, "overloaded_error", "It failed."},
		"504":       {failure(504), 504, "timeout_error", "It failed."},
		"529":       {failure(529), 529, "overloaded_error", "It failed."},
		"no *Error": {errors.New("a secret cause"), 500, "api_error", "The server had an error while processing your request. Sorry about that!"},
		"prompt too long": {
			tooLong("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
			400,
			"invalid_request_error",
			"prompt is too long: 9000 tokens > 8192 maximum",
		},
		"prompt and reply too long": {tooLong("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion)."), 400,
			"invalid_request_error", "prompt is too long: 5000 tokens > 4096 maximum"},
		"prompt too long, length before maximum": {
			tooLong("Your prompt has 5000 tokens, but the maximum is 4096."),
			400,
			"invalid_request_error",
			"prompt is too long: 5000 tokens > 4096 maximum",
		},
		"prompt too long, no numbers": {tooLong("Shorten it."), 400, "invalid_request_error", "prompt is too long: Shorten it."},
		"prompt too long, one number": {
			tooLong("The maximum is 4096 tokens."),
			400,
			"invalid_request_error",
			"prompt is too long: The maximum is 4096 tokens.",
		},
		"prompt too long, wording of this API": {
			tooLong("prompt is too long: 2 tokens > 1 maximum"),
			400,
			"invalid_request_error",
			"prompt is too long: 2 tokens > 1 maximum",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(func() llm.ChatStream { return llm.Fail(test.err) }, nil)
			for _, stream := range []string{"false", "true"} {
				w := s.do("POST", messagesPath, requestBody(hi+`,"stream":`+stream))
				assert.Equal(t, test.status, w.Code)
				typ, message, err := readError(w.Body.Bytes())
				require.NoError(t, err)
				assert.Equal(t, test.typ, typ)
				assert.Equal(t, test.message, message)
				assert.Contains(t, w.Body.String(), `"request_id":"`+w.Header().Get("Request-Id")+`"`)
			}
			s = newServer(func() llm.ChatStream {
				return func(yield func(*llm.ChatChunk, error) bool) {
					if yield(llm.TextChunk("Hi"), nil) {
						yield(nil, test.err)
					}
				}
			}, nil)
			body := s.stream(requestBody(hi + `,"stream":true`))
			events, err := parseEvents(body)
			require.NoError(t, err)
			last := events[len(events)-1]
			assert.Equal(t, "error", last.Name)
			typ, message, err := readError([]byte(last.Data))
			require.NoError(t, err)
			assert.Equal(t, test.typ, typ)
			assert.Equal(t, test.message, message)
		})
	}
}

// Requests below the paths of this API that no route serves are refused in its form. Below
// /v1/models, that depends on the header of the version.
func TestErrors_UnknownPaths(t *testing.T) {
	for _, test := range []struct {
		method, path, version string
		status                int
		typ                   string // "" for the form of chat completions
	}{
		{"GET", "/v1/messages", "", 405, "invalid_request_error"},
		{"GET", "/v1/messages/count_tokens", "", 405, "invalid_request_error"},
		{"POST", "/v1/messages/batches", "", 404, "not_found_error"},
		{"GET", "/v1/messages/batches/b/results", "2023-06-01", 404, "not_found_error"},
		{"POST", "/v1/models", "2023-06-01", 405, "invalid_request_error"},
		{"DELETE", "/v1/models/m", "2023-06-01", 405, "invalid_request_error"},
		{"POST", "/v1/models", "", 405, ""},
		{"GET", "/v1/files", "2023-06-01", 404, "not_found_error"},
		{"GET", "/v1/files", "", 404, ""},
		{"POST", "/v1/messagesque", "2023-06-01", 404, "not_found_error"},
		{"POST", "/v1/messagesque", "", 404, ""},
		{"POST", "/v1", "2023-06-01", 404, "not_found_error"},
		{"GET", "/v1/chat/completions", "2023-06-01", 405, ""},
	} {
		t.Run(test.method+" "+test.path+" "+test.version, func(t *testing.T) {
			s := newServer(nil, nil)
			r := httptest.NewRequest(test.method, test.path, strings.NewReader("{}"))
			if test.version != "" {
				r.Header.Set("Anthropic-Version", test.version)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			assert.Equal(t, test.status, w.Code)
			assert.Equal(t, test.status == 405, w.Header().Get("Allow") != "")
			if test.typ == "" {
				assert.Contains(t, w.Body.String(), `{"error":{"message":`)
				assert.Equal(t, "chat", s.ends[0].Record.Protocol)
				return
			}
			typ, _, err := readError(w.Body.Bytes())
			require.NoError(t, err, "%s", w.Body)
			assert.Equal(t, test.typ, typ)
			assert.NotEmpty(t, w.Header().Get("Request-Id"))
			assert.Equal(t, "messages", s.ends[0].Record.Protocol)
		})
	}
}
