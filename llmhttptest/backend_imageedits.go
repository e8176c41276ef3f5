// Checks of edits of images.

package llmhttptest

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var imageEditOperation = operation{
	model: func(o *BackendOptions) string { return o.ImageEditModel },
	checks: []check[backendTest]{
		{"ImageEdits", checkImageEdits},
		{"ImageEditUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.ImageEditModel, func(model string) error {
				req := b.imageEditRequest(t)
				req.Model = model
				return b.edit(t, req)
			})
		}},
		{"ImageEditCancelled", func(t testing.TB, b backendTest) {
			wantCancelled(&b, t, "EditImages", imageedit.Editor.EditImages, b.imageEditRequest(t))
		}},
		{"ImageEditStream", func(t testing.TB, b backendTest) {
			req := b.imageEditRequest(t)
			r := b.readDrawn(t.Context(), t, "StreamImageEdits", &req.ImageRequest, func(ctx context.Context) llm.ImageStream {
				return imageedit.Stream(ctx, b.Backend, req)
			}, all)
			if r.err != nil || r.complete != 1 || r.partial {
				t.Errorf("the stream of an edit has %d complete images, and ends with the error %v and with one that is Partial: %t; want 1, none and false",
					r.complete, r.err, r.partial)
			}
		}},
	},
	guards: []check[guard]{
		{"EditImages", func(t testing.TB, g guard) {
			guardCall(t, g, imageedit.Editor.EditImages, g.edit())
		}},
		{"StreamEdits", func(t testing.TB, g guard) {
			req := g.edit()
			req.Stream = true
			g.check(t, func(ctx context.Context, b llmhttp.Backend) { drain(imageedit.Stream(ctx, b, req)) })
		}},
	},
}

func (g *guard) edit() *imageedit.Request {
	return &imageedit.Request{ImageRequest: llm.ImageRequest{Model: "m", Prompt: g.text}, Images: []*llm.File{emptyFile()}}
}

// imageEditRequest returns a plain request for one edit of one image.
func (b *backendTest) imageEditRequest(t testing.TB) *imageedit.Request {
	t.Helper()
	return &imageedit.Request{
		ImageRequest: *b.imageRequest(t, b.opts.ImageEditModel),
		Images:       []*llm.File{imageFile(t, "square.png", color.NRGBA{R: 0xff, A: 0xff})},
	}
}

// imageFile returns a PNG of one color, which has 256 pixels on each side.
func imageFile(t testing.TB, name string, c color.Color) *llm.File {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, 256, 256))
	for i := range 256 * 256 {
		img.Set(i%256, i/256, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return &llm.File{Name: name, ContentType: "image/png", Size: int64(b.Len()), Content: bytes.NewReader(b.Bytes())}
}

// edit edits images and reports faults of the response.
func (b *backendTest) edit(t testing.TB, req *imageedit.Request) error {
	t.Helper()
	return draw(b, t, "EditImages", imageedit.Editor.EditImages, req, &req.ImageRequest)
}

func checkImageEdits(t testing.TB, b backendTest) {
	if err := b.edit(t, b.imageEditRequest(t)); err != nil {
		t.Fatalf("EditImages returned the error %v for a plain request, want nil", err)
	}
	for _, change := range []func(*imageedit.Request){
		func(r *imageedit.Request) { r.N = new(2) },
		func(r *imageedit.Request) { r.Size = "" },
		func(r *imageedit.Request) { r.Size = llm.ImageSizeAuto },
		func(r *imageedit.Request) { r.Images[0].Name, r.Images[0].ContentType = "", "" },
		func(r *imageedit.Request) {
			r.Images = append(r.Images, imageFile(t, "", color.White))
			r.Mask = imageFile(t, "mask.png", color.Transparent)
		},
		func(r *imageedit.Request) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`{"a":1}`)} },
	} {
		req := b.imageEditRequest(t)
		change(req)
		if err := b.edit(t, req); err != nil {
			wantClientError(t, err)
		}
	}
	req := b.imageEditRequest(t)
	req.Images[0] = &llm.File{Name: "notes.txt", ContentType: "text/plain", Size: 5, Content: strings.NewReader("Hello")}
	if err := b.edit(t, req); err != nil {
		wantClientError(t, err)
	}
	const calls = 4
	runConcurrently(t, calls, func(int) {
		if resp, err := ability.Call(imageedit.Editor.EditImages)(t.Context(), b.Backend, b.imageEditRequest(t)); err != nil || len(resp.Data) != 1 {
			t.Errorf("one of %d concurrent calls of EditImages returned %+v and the error %v, want one image", calls, resp, err)
		}
	})
}
