package imageedit

import (
	"testing"

	"github.com/llmhttp/llmhttp/internal/endpointtest"
)

// Every text of a request counts, wherever it is.
func TestRequest_EveryTextCounts(t *testing.T) {
	var req Request
	endpointtest.CheckTextsCount(t, "edits", &req, req.countTokens, nil)
}
