// Where the texts of speech are.

package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/ability"
)

var speechTexts = textsOf(func(w *rewriter, r *audio.SpeechRequest) {
	w.text(Content, &r.Input)
	w.text(Content, &r.Instructions)
	w.extra(r.Voice.Extra)
	w.extra(r.Extra)
})

// Speak implements [audio.Speaker]. Audio has no texts.
func (b *backend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return filterStream(ctx, b, speechTexts, ability.Stream(audio.Speaker.Speak), req, nil)
}
