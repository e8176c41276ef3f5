package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
)

var _ llmhttp.Transcriber = (*Router)(nil)

var transcriptions = &streaming[llmhttp.TranscriptionRequest, llmhttp.TranscriptionChunk]{
	name:       llmhttp.OperationTranscriptions,
	model:      func(r *llmhttp.TranscriptionRequest) *string { return &r.Model },
	clone:      (*llmhttp.TranscriptionRequest).Clone,
	call:       ability.Stream(llmhttp.Transcriber.Transcribe),
	hasContent: func(c *llmhttp.TranscriptionChunk) bool { return c.Text != "" || len(c.Segments) > 0 },
}

// Transcribe implements [llmhttp.Transcriber]. Each try gets a copy of req, and reads the file from
// its start.
func (r *Router) Transcribe(ctx context.Context, req *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
	return transcriptions.serve(ctx, r, req)
}
