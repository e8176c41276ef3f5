package moderation

import (
	"testing"

	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/internal/texttest"
)

// Every text of a request counts, wherever it is.
func TestRequest_EveryTextCounts(t *testing.T) {
	var req Request
	endpointtest.CheckTextsCount(t, "moderations", &req, req.countTokens, func(path string) int {
		if path == "moderations.Input.Parts[0].ImageURL.URL" {
			return len(texttest.Long) / 513 // it may contain an image
		}
		return len(texttest.Long)
	})
}
