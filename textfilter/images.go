// Where the texts of generated images are.

package textfilter

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

// What is to be seen on images is not rewritten.
var imageTexts = textsOf((*rewriter).imageRequest)

func (w *rewriter) imageRequest(r *llm.ImageRequest) {
	w.text(Content, &r.Prompt)
	w.extra(r.Extra)
}

func (w *rewriter) images(r *llm.ImageResponse) {
	r.Data = slices.Clone(r.Data)
	for i := range r.Data {
		w.image(&r.Data[i])
	}
	w.extra(cloneExtra(&r.Extra))
}

func (w *rewriter) image(m *llm.Image) {
	w.text(Content, &m.RevisedPrompt)
	w.extra(cloneExtra(&m.Extra))
}

// GenerateImages implements [llmhttp.ImageGenerator].
func (b *backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return filterReply(ctx, b, imageTexts, ability.Call(llmhttp.ImageGenerator.GenerateImages), req, (*rewriter).images)
}

// StreamImages implements [llmhttp.ImageStreamer].
func (b *backend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return filterStream(ctx, b, imageTexts, llmhttp.StreamImages, req, (*Filter).imageStream)
}

// imageStream filters a stream of images.
func (f *Filter) imageStream(stream llm.ImageStream, yield func(*llm.ImageChunk, error) bool) {
	w := f.rewriter()
	stream(func(c *llm.ImageChunk, err error) bool {
		if err != nil || c == nil || c.Image == nil {
			return yield(c, err)
		}
		out, image := *c, *c.Image // which belong to the Backend
		w.image(&image)
		if w.err != nil {
			yield(nil, errFiltered(w.err))
			return false
		}
		out.Image = &image
		return yield(&out, nil)
	})
}

// ImageSizes implements [llmhttp.ImageSizer]. It has no texts.
func (b *backend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	return ability.Call(llmhttp.ImageSizer.ImageSizes)(ctx, b.next, model)
}
