package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

var speech = &streaming[llmhttp.SpeechRequest, llmhttp.SpeechChunk]{
	name:       llmhttp.OperationSpeech,
	model:      func(r *llmhttp.SpeechRequest) *string { return &r.Model },
	clone:      deepcopy.Of[llmhttp.SpeechRequest],
	call:       ability.Stream(llmhttp.Speaker.Speak),
	hasContent: func(c *llmhttp.SpeechChunk) bool { return len(c.Audio) > 0 },
}

// Speak implements [llmhttp.Speaker]. Each try gets a copy of req. No other target is tried when
// audio has reached the client.
func (r *Router) Speak(ctx context.Context, req *llmhttp.SpeechRequest) llmhttp.SpeechStream {
	return speech.serve(ctx, r, req)
}
