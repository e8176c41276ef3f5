// Images: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// Images returns a Matcher for requests for images: see [Embeddings].
func Images() Matcher { return operationMatcher(llmhttp.OperationImages) }

// GenerateImages implements [llmhttp.ImageGenerator].
func (b backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	if err := b.playImages(ctx, req, new(*req), "for images"); err != nil {
		return nil, err
	}
	return simulator.Draw(ctx, req)
}

// StreamImages implements [llmhttp.ImageStreamer].
func (b backend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		if err := b.playImages(ctx, req, new(*req), "for images"); err != nil {
			yield(nil, err)
			return
		}
		simulator.DrawStream(ctx, req, 0)(yield)
	}
}

// playImages plays the reply to a request for images or an edit, of which req is a part. If there is no
// error, it is the simulated one. asked is the copy that Request.Asked has, and what says what it asks for.
func (b backend) playImages(ctx context.Context, req *llm.ImageRequest, asked any, what string) error {
	p, err := b.s.playOther(ctx, func(r *Request) {
		r.Asked, r.Model, r.Stream, r.userText = asked, req.Model, req.Stream, req.Prompt
	})
	if err == nil && !p.simulated {
		err = p.misfit(what)
	}
	return err
}

// vendorSizes has the sizes of the image models of OpenAI, by the beginnings of their names.
var vendorSizes = []struct {
	model string
	sizes []string
}{
	{"dall-e-2", []string{"256x256", "512x512", "1024x1024"}},
	{"dall-e-3", []string{"1024x1024", "1024x1792", "1792x1024"}},
	{"gpt-image-1", []string{"1024x1024", "1024x1536", "1536x1024"}},
}

// ImageSizes implements [llmhttp.ImageSizer].
func (b backend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	for _, v := range vendorSizes {
		if strings.HasPrefix(model, v.model) {
			return v.sizes, nil
		}
	}
	return nil, nil // any
}
