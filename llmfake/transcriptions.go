// Transcriptions: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// Transcriptions returns a Matcher for requests for transcriptions and translations of recordings:
// see [Embeddings].
func Transcriptions() Matcher { return operationMatcher(audio.OperationTranscriptions) }

// Transcribe implements [audio.Transcriber].
func (b backend) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
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
