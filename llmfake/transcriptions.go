package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// Transcriptions returns a Matcher for requests for transcriptions and translations of recordings:
// see [Embeddings].
func Transcriptions() Matcher { return operationMatcher(llmhttp.OperationTranscriptions) }

// Transcribe implements [llmhttp.Transcriber].
func (b backend) Transcribe(ctx context.Context, req *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
	return func(yield func(*llmhttp.TranscriptionChunk, error) bool) {
		p, err := b.s.playOther(ctx, func(r *Request) { r.Asked, r.Model, r.Stream = req.Clone(), req.Model, req.Stream })
		switch {
		case err != nil:
			yield(nil, err)
			return
		case !p.simulated:
			yield(nil, p.misfit("for a transcription"))
			return
		}
		asked := req.Clone()
		asked.Model = simulator.ModelTranscribe
		b.s.model.Transcribe(ctx, asked)(yield)
	}
}
