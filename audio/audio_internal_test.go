package audio

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/form"
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

// The mistakes of a form are told to clients.
func FuzzTranscriptionRequest(f *testing.F) {
	f.Add("stream", "True", "include[]", `["a"]`)
	f.Add("temperature", "1e400", "Model", "")
	f.Fuzz(func(t *testing.T, name, value, other, element string) {
		req := new(TranscriptionRequest)
		err := req.decode(&form.Form{Values: map[string][]string{"model": {"m"}, name: {value}, other: {element, value}}})
		if err == nil {
			req.File = &llm.File{Size: 1}
			err = req.Validate()
		}
		if err != nil {
			require.IsType(t, new(llm.Error), err)
		}
	})
}
