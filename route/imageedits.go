package route

import (
	"context"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var (
	_ imageedit.Editor   = (*Router)(nil)
	_ imageedit.Streamer = (*Router)(nil)
)

var imageEdits = &oneShot[imageedit.Request, llm.ImageResponse]{
	name:  imageedit.Operation,
	model: func(r *imageedit.Request) *string { return &r.Model },
	call:  ability.Call(imageedit.Editor.EditImages),
}

var imageEditStreams = newImageStreams(imageEdits, imageedit.Stream)

// EditImages implements [imageedit.Editor]. Each try gets a copy of req, and reads the files from
// their start.
func (r *Router) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	return imageEdits.serve(ctx, r, req)
}

// StreamImageEdits implements [imageedit.Streamer], as StreamImages an ImageStreamer.
func (r *Router) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	return imageEditStreams.serve(ctx, r, req)
}
