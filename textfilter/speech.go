package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
)

var speechTexts = textsOf(func(w *rewriter, r *llmhttp.SpeechRequest) {
	w.text(Content, &r.Input)
	w.text(Content, &r.Instructions)
	w.extra(r.Voice.Extra)
	w.extra(r.Extra)
})

// Speak implements [llmhttp.Speaker]. Audio has no texts.
func (b *backend) Speak(ctx context.Context, req *llmhttp.SpeechRequest) llmhttp.SpeechStream {
	return filterStream(ctx, b, speechTexts, ability.Stream(llmhttp.Speaker.Speak), req, nil)
}
