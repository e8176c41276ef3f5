package llmhttp_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

// Codes of errors about parameters. The code accepted means that there is no error.
const (
	accepted      = "accepted"
	notJSON       = "" // a null code
	missing       = "missing_required_parameter"
	duplicate     = "duplicate_parameter"
	invalidType   = "invalid_type"
	invalidValue  = "invalid_value"
	decimalHigh   = "decimal_above_max_value"
	decimalLow    = "decimal_below_min_value"
	integerHigh   = "integer_above_max_value"
	integerLow    = "integer_below_min_value"
	emptyArray    = "empty_array"
	emptyString   = "empty_string"
	arrayTooLong  = "array_above_max_length"
	stringTooLong = "string_above_max_length"
	objectTooBig  = "object_above_max_properties"
)

// A paramTest is a list of bodies that all have the same result.
type paramTest struct {
	param, code string // of the error
	bodies      []string
}

// checkParams posts the bodies of tests to path and checks the results.
func checkParams(t *testing.T, s *testServer, path string, tests []paramTest) {
	for _, tt := range tests {
		for _, body := range tt.bodies {
			t.Run(fmt.Sprintf("%.70q", strings.TrimPrefix(body, strings.TrimSuffix(chatBody, "}"))), func(t *testing.T) {
				r := s.do("POST", path, body, withHeader("Content-Type", "application/json"))
				if tt.code == accepted {
					assert.Equal(t, 200, r.StatusCode, "%s", r.body)
					return
				}
				e := r.checkError(t, 400)
				assert.Equal(t, "invalid_request_error", e.Type)
				assert.Equal(t, tt.param, e.Param, "%s", r.body)
				assert.Equal(t, tt.code, e.Code, "%s", r.body)
				checkWords(t, e)
			})
		}
	}
}

// checkWords checks that an error is short and has no terms of Go.
func checkWords(t testing.TB, e apiError) {
	t.Helper()
	endpointtest.CheckWords(t, e.Message, e.Param)
}

// repeatJSON returns an array of n items.
func repeatJSON(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// each replaces each string of list by the result of f, and returns list.
func each(f func(string) string, list ...string) []string {
	for i := range list {
		list[i] = f(list[i])
	}
	return list
}

// A lastRequestBackend keeps the last request of each kind.
type lastRequestBackend struct {
	stubBackend
	chat       atomic.Pointer[llm.ChatRequest]
	images     atomic.Pointer[llm.ImageRequest]
	embeddings atomic.Pointer[llm.EmbeddingRequest]
}

func (b *lastRequestBackend) Chat(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
	b.chat.Store(r)
	return b.stubBackend.Chat(ctx, r)
}

func (b *lastRequestBackend) GenerateImages(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
	b.images.Store(r)
	return b.stubBackend.GenerateImages(ctx, r)
}

func (b *lastRequestBackend) Embed(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	b.embeddings.Store(r)
	return b.stubBackend.Embed(ctx, r)
}
