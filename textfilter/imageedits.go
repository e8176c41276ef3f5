// Where the texts of edits of images are.

package textfilter

import (
	"context"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var imageEditTexts = textsOf(func(w *rewriter, r *imageedit.Request) {
	w.imageRequest(&r.ImageRequest)
	for _, file := range r.Files() {
		w.text(Other, &file.Name)
	}
})

// EditImages implements [imageedit.Editor].
func (b *backend) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	return filterReply(ctx, b, imageEditTexts, ability.Call(imageedit.Editor.EditImages), req, (*rewriter).images)
}

// StreamImageEdits implements [imageedit.Streamer].
func (b *backend) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	return filterStream(ctx, b, imageEditTexts, imageedit.Stream, req, (*Filter).imageStream)
}
