// Speech: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// Speech returns a Matcher for requests for speech: see [Embeddings].
func Speech() Matcher { return operationMatcher(audio.OperationSpeech) }

// Audio returns a Reply to a request for speech: pieces of audio, each of which is sent at once.
func Audio(pieces ...[]byte) Reply { return otherReply("Audio(...)", pieces) }

// Speak implements [audio.Speaker].
func (b backend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		p, err := b.s.playOther(ctx, func(r *Request) { r.Asked, r.Model, r.Stream, r.userText = new(*req), req.Model, true, req.Input })
		switch {
		case err != nil:
			yield(nil, err)
			return
		case p.simulated:
			asked := *req
			asked.Model = simulator.ModelSpeech
			b.s.model.Speak(ctx, &asked)(yield)
			return
		}
		pieces, _ := p.other.([][]byte)
		if pieces == nil {
			yield(nil, p.misfit("for speech"))
			return
		}
		for _, piece := range pieces {
			if !yield(&audio.SpeechChunk{Audio: piece}, nil) {
				return
			}
		}
		yield(&audio.SpeechChunk{Usage: p.usage}, nil)
	}
}
