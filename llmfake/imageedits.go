// Edits of images: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// ImageEdits returns a Matcher for requests for edits of images: see [Embeddings].
func ImageEdits() Matcher { return operationMatcher(imageedit.Operation) }

// EditImages implements [imageedit.Editor].
func (b backend) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	if err := b.playEdit(ctx, req); err != nil {
		return nil, err
	}
	return simulator.Edit(ctx, req)
}

// StreamImageEdits implements [imageedit.Streamer].
func (b backend) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		if err := b.playEdit(ctx, req); err != nil {
			yield(nil, err)
			return
		}
		simulator.EditStream(ctx, req, 0)(yield)
	}
}

// playEdit plays the reply to a request for an edit, as playImages.
func (b backend) playEdit(ctx context.Context, req *imageedit.Request) error {
	return b.playImages(ctx, &req.ImageRequest, new(*req), "for edits of images")
}
