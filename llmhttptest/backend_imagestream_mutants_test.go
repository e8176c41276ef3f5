package llmhttptest

import (
	"context"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
)

type (
	drawn     = llm.ImageChunk
	drawnFunc = func(*drawn, error) bool
)

// drawStream yields the images that the other methods return, and before each as many that are not
// complete as are asked for.
func drawStream(ctx context.Context, e *echo, req *imageReq) llm.ImageStream {
	return drawnStream(ctx, req, func() (*imageResp, error) { return e.images(req) })
}

// drawnStream yields the images that draw returns as drawStream.
func drawnStream(ctx context.Context, req *imageReq, draw func() (*imageResp, error)) llm.ImageStream {
	return func(yield drawnFunc) {
		resp, err := draw()
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range resp.Data {
			previews := 0
			if req.PartialImages != nil {
				previews = *req.PartialImages
			}
			for k := range previews + 1 {
				if ctx.Err() != nil {
					yield(nil, ctx.Err())
					return
				}
				if !yield(&drawn{Image: &resp.Data[i], Partial: k < previews}, nil) {
					return
				}
			}
		}
	}
}

// streaming returns a constructor of a Backend with another StreamImages.
func streaming(f func(ctx context.Context, e *echo, req *imageReq) llm.ImageStream) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.drawing = f })
}

// editingDrawn returns a constructor of a Backend that changes chunks.
func editingDrawn(change func(c *drawn)) func(testing.TB) backendTest {
	return streaming(func(ctx context.Context, e *echo, req *imageReq) llm.ImageStream {
		return func(yield drawnFunc) {
			drawStream(ctx, e, req)(func(c *drawn, err error) bool {
				if c != nil {
					change(c)
				}
				return yield(c, err)
			})
		}
	})
}

var imageStreamMutants = []mutant[backendTest]{
	{"the stream is nil", "ImageStream", streaming(func(context.Context, *echo, *imageReq) llm.ImageStream { return nil })},
	{"the stream is empty", "ImageStream", streaming(func(context.Context, *echo, *imageReq) llm.ImageStream { return func(drawnFunc) {} })},
	{"every stream fails", "ImageStream", streaming(func(context.Context, *echo, *imageReq) llm.ImageStream {
		return func(yield drawnFunc) { yield(nil, llm.Errorf(429, "busy", "Busy.")) }
	})},
	{"previews are a server error", "ImageStream", streaming(func(ctx context.Context, e *echo, req *imageReq) llm.ImageStream {
		if req.PartialImages != nil {
			return func(yield drawnFunc) { yield(nil, errNotImplemented) }
		}
		return drawStream(ctx, e, req)
	})},
	{"no image is complete", "ImageStream", editingDrawn(func(c *drawn) { c.Partial = true })},
	{"previews are complete", "ImageStream", editingDrawn(func(c *drawn) { c.Partial = false })},
	{"the last image is a preview", "ImageStream", streaming(func(ctx context.Context, e *echo, req *imageReq) llm.ImageStream {
		return func(yield drawnFunc) {
			drawStream(ctx, e, req)(yield)
			yield(&drawn{Image: &llm.Image{URL: "data:image/png;base64,eA=="}, Partial: true}, nil)
		}
	})},
	{"a preview has no image", "ImageStream", editingDrawn(func(c *drawn) {
		if c.Partial {
			c.Image = nil
		}
	})},
	{"an image has no data", "ImageStream", editingDrawn(func(c *drawn) { c.Image = &llm.Image{} })},
	{"an image is HTML", "ImageStream", editingDrawn(func(c *drawn) { c.Image = &llm.Image{Data: []byte("<html>")} })},
	{"the Extra of an image is invalid", "ImageStream", editingDrawn(func(c *drawn) { c.Image.Extra = invalid })},
	{"the usage is negative", "ImageStream", editingDrawn(func(c *drawn) { c.Usage = &llm.Usage{PromptTokens: -1} })},
	{"the result of yield is ignored", "ImageStreamBreak", streaming(func(ctx context.Context, e *echo, req *imageReq) llm.ImageStream {
		return func(yield drawnFunc) {
			drawStream(ctx, e, req)(func(c *drawn, err error) bool { yield(c, err); return true })
		}
	})},
	{"the context is ignored", "ImageStreamCancel", streaming(func(_ context.Context, e *echo, req *imageReq) llm.ImageStream {
		return func(yield drawnFunc) {
			for yield(&drawn{}, nil) {
			}
		}
	})},
}
