package audio

import (
	"testing"

	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// Every text of a request counts, wherever it is.
func TestRequests_EveryTextCounts(t *testing.T) {
	var speech SpeechRequest
	endpointtest.CheckTextsCount(t, "speech", &speech, speech.countTokens, nil)
	var transcription TranscriptionRequest
	endpointtest.CheckTextsCount(t, "transcriptions", &transcription, func(c tokens.Estimator) int {
		r := transcription
		if r.File == nil {
			r.File = new(llm.File)
		}
		return r.countTokens(c)
	}, nil)
}
