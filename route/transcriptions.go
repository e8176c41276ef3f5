package route

import (
	"context"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/ability"
)

var _ audio.Transcriber = (*Router)(nil)

var transcriptions = &streaming[audio.TranscriptionRequest, audio.TranscriptionChunk]{
	name:       audio.OperationTranscriptions,
	model:      func(r *audio.TranscriptionRequest) *string { return &r.Model },
	clone:      (*audio.TranscriptionRequest).Clone,
	call:       ability.Stream(audio.Transcriber.Transcribe),
	hasContent: func(c *audio.TranscriptionChunk) bool { return c.Text != "" || len(c.Segments) > 0 },
}

// Transcribe implements [audio.Transcriber]. Each try gets a copy of req, and reads the file from
// its start.
func (r *Router) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return transcriptions.serve(ctx, r, req)
}
