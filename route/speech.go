package route

import (
	"context"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
)

var speech = &streaming[audio.SpeechRequest, audio.SpeechChunk]{
	name:       audio.OperationSpeech,
	model:      func(r *audio.SpeechRequest) *string { return &r.Model },
	clone:      deepcopy.Of[audio.SpeechRequest],
	call:       ability.Stream(audio.Speaker.Speak),
	hasContent: func(c *audio.SpeechChunk) bool { return len(c.Audio) > 0 },
}

// Speak implements [audio.Speaker]. Each try gets a copy of req. No other target is tried when
// audio has reached the client.
func (r *Router) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return speech.serve(ctx, r, req)
}
