package llmhttptest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
)

// editImages draws images of the size that is asked for, or of that of a file.
func editImages(req *editReq) (*imageResp, error) {
	if strings.HasSuffix(req.Images[0].Name, ".txt") {
		return nil, llm.Errorf(400, "invalid_value", "No image.").WithParam("image")
	}
	if _, _, ok := parseSize(req.Size); !ok {
		req.Size = "256x256"
	}
	return drawImages(&req.ImageRequest)
}

// streamEdits is drawStream for edits.
func streamEdits(ctx context.Context, e *echo, req *editReq) llm.ImageStream {
	return drawnStream(ctx, &req.ImageRequest, func() (*imageResp, error) { return e.editing(req) })
}

// streamingEdits returns a constructor of a Backend with another StreamImageEdits.
func streamingEdits(f func(ctx context.Context, e *echo, req *editReq) llm.ImageStream) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.editDraw = f })
}

// editingWith returns a constructor of a Backend with another EditImages.
func editingWith(f func(req *editReq) (*imageResp, error)) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.editing = f })
}

// editUnless returns an EditImages that fails with err if fails returns true.
func editUnless(err error, fails func(req *editReq) bool) func(testing.TB) backendTest {
	return editingWith(func(req *editReq) (*imageResp, error) {
		if fails(req) {
			return nil, err
		}
		return editImages(req)
	})
}

var imageEditMutants = []mutant[backendTest]{
	{"EditImages is not implemented", "ImageEdits", chatOnly},
	{"N is ignored", "ImageEdits", editingWith(func(req *editReq) (*imageResp, error) { req.N = nil; return editImages(req) })},
	{"Size is ignored", "ImageEdits", editingWith(func(req *editReq) (*imageResp, error) { req.Size = ""; return editImages(req) })},
	{"an empty Size is a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return req.Size == "" })},
	{"an automatic Size is a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return req.Size == llm.ImageSizeAuto })},
	{"a file without a name is a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return req.Images[0].Name == "" })},
	{"several images are a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return len(req.Images) > 1 })},
	{"a mask is a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return req.Mask != nil })},
	{"a file that is not an image is a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return req.Images[0].Name == "notes.txt" })},
	{"Extra is a server error", "ImageEdits", editUnless(errNotImplemented, func(req *editReq) bool { return req.Extra != nil })},
	{"every call fails", "ImageEdits", editUnless(llm.Errorf(429, "busy", "Busy."), func(*editReq) bool { return true })},
	{"the response and the error are nil", "ImageEdits", editingWith(func(*editReq) (*imageResp, error) { return nil, nil })},
	{"an image has no data", "ImageEdits", editingWith(func(req *editReq) (*imageResp, error) {
		resp, err := editImages(req)
		if resp != nil {
			resp.Data[0].Data = nil
		}
		return resp, err
	})},
	{"concurrent calls are refused", "ImageEdits", editingWith(exclusive(editImages))},

	{"any model is accepted", "ImageEditUnknownModel", editingWith(func(req *editReq) (*imageResp, error) { req.Model = "draw"; return editImages(req) })},
	{"an unknown model is a server error", "ImageEditUnknownModel", editUnless(errors.New("no such model"), func(req *editReq) bool { return req.Model != "draw" })},
	{"the context is ignored", "ImageEditCancelled", editingWith(delayed(editImages))},

	{"the stream is nil", "ImageEditStream", streamingEdits(func(context.Context, *echo, *editReq) llm.ImageStream { return nil })},
	{"edits are not streamed", "ImageEditStream", streamingEdits(func(context.Context, *echo, *editReq) llm.ImageStream {
		return func(yield drawnFunc) { yield(nil, errors.New("no edits")) }
	})},
	{"no image is complete", "ImageEditStream", streamingEdits(func(ctx context.Context, e *echo, req *editReq) llm.ImageStream {
		return func(yield drawnFunc) {
			streamEdits(ctx, e, req)(func(c *drawn, err error) bool {
				if c != nil {
					c.Partial = true
				}
				return yield(c, err)
			})
		}
	})},
	{"the last image is a preview", "ImageEditStream", streamingEdits(func(ctx context.Context, e *echo, req *editReq) llm.ImageStream {
		return func(yield drawnFunc) {
			streamEdits(ctx, e, req)(yield)
			yield(&drawn{Image: &llm.Image{URL: "data:image/png;base64,eA=="}, Partial: true}, nil)
		}
	})},
}
