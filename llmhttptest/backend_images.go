// Checks of generated images.

package llmhttptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // the formats whose size checkImageData can check
	_ "image/jpeg"
	_ "image/png"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/llm"
)

var imagesOperation = operation{
	model: func(o *BackendOptions) string { return o.ImageModel },
	checks: []check[backendTest]{
		{"Images", checkImages},
		{"ImageSizes", checkImageSizes},
		{"ImageUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.ImageModel, func(model string) error {
				req := b.imageRequest(t, b.opts.ImageModel)
				req.Model = model
				return b.generate(t, req)
			})
		}},
		{"ImageCancelled", func(t testing.TB, b backendTest) {
			wantCancelled(&b, t, "GenerateImages", llmhttp.ImageGenerator.GenerateImages, b.imageRequest(t, b.opts.ImageModel))
		}},
		{"ImageStream", checkImageStream},
		{"ImageStreamBreak", func(t testing.TB, b backendTest) {
			req := b.imageRequest(t, b.opts.ImageModel)
			req.PartialImages = new(3)
			b.drawStream(t.Context(), t, req, func(drawnReply) bool { return false })
		}},
		{"ImageStreamCancel", func(t testing.TB, b backendTest) {
			req := b.imageRequest(t, b.opts.ImageModel)
			req.PartialImages = new(3)
			const limit = 1000 // more chunks than a Backend buffers
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := b.drawStream(ctx, t, req, func(r drawnReply) bool {
				cancel()
				return r.chunks <= limit
			})
			if r.chunks > limit {
				t.Errorf("the stream yielded %d chunks after its context was cancelled, want it to end", limit)
			}
		}},
	},
	guards: []check[guard]{
		{"GenerateImages", func(t testing.TB, g guard) {
			guardCall(t, g, llmhttp.ImageGenerator.GenerateImages, &llm.ImageRequest{Model: "m", Prompt: g.text})
		}},
		{"StreamImages", func(t testing.TB, g guard) {
			g.check(t, func(ctx context.Context, b llmhttp.Backend) {
				drain(llmhttp.StreamImages(ctx, b, &llm.ImageRequest{Model: "m", Prompt: g.text, Stream: true}))
			})
		}},
	},
}

// imageRequest returns a plain request for one image of the smallest size.
func (b *backendTest) imageRequest(t testing.TB, model string) *llm.ImageRequest {
	t.Helper()
	sizes, err := ability.Call(llmhttp.ImageSizer.ImageSizes)(t.Context(), b.Backend, model)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("ImageSizes returned the error %v, want nil", err)
	}
	smallest := "1024x1024"
	if len(sizes) > 0 {
		smallest = slices.MinFunc(sizes, func(a, b string) int {
			aw, ah, _ := parseSize(a)
			bw, bh, _ := parseSize(b)
			return aw*ah - bw*bh
		})
	}
	return &llm.ImageRequest{Model: model, Prompt: "A red square.", Size: smallest, ResponseFormat: llm.ImageFormatURL}
}

// parseSize parses a size such as "1024x1024".
func parseSize(s string) (width, height int, ok bool) {
	_, _ = fmt.Sscanf(s, "%dx%d", &width, &height)
	return width, height, width > 0 && height > 0 && fmt.Sprintf("%dx%d", width, height) == s
}

// generate generates images and reports faults of the response.
func (b *backendTest) generate(t testing.TB, req *llm.ImageRequest) error {
	t.Helper()
	return draw(b, t, "GenerateImages", llmhttp.ImageGenerator.GenerateImages, req, req)
}

// draw calls a method that returns images with req, of which asked is a part, and reports faults of the response.
func draw[A, Req any](
	b *backendTest,
	t testing.TB,
	name string,
	method func(A, context.Context, *Req) (*llm.ImageResponse, error),
	req *Req,
	asked *llm.ImageRequest,
) error {
	t.Helper()
	n, size := asked.Count(), asked.Size // before the Backend may change req
	resp, err := callMethod(b, t, name, method, req)
	if err != nil {
		return err
	}
	if len(resp.Data) != n {
		t.Errorf("%s returned %d images, want %d", name, len(resp.Data), n)
	}
	wantJSON(t, "the response", resp, resp.Extra)
	wantConsistentUsage(t, "the response", resp.Usage)
	for i, img := range resp.Data {
		what := fmt.Sprintf("image %d", i)
		wantJSON(t, what, img, img.Extra)
		if len(img.Data) > 0 {
			wantImage(t, what, img.Data, size)
		} else if img.URL == "" {
			t.Errorf("%s has neither Data nor a URL, want one of them", what)
		}
		if img.URL != "" && !isImageURL(img.URL) {
			t.Errorf("%s has the URL %.100q, want an absolute http, https or data URL", what, img.URL)
		}
	}
	return nil
}

func isImageURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "data" || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "")
}

// wantImage reports an error unless data is an image. It checks the size of
// formats that the standard library can decode, unless that is left to the Backend.
func wantImage(t testing.TB, what string, data []byte, size string) {
	t.Helper()
	if kind := images.MediaType(data); !strings.HasPrefix(kind, "image/") {
		t.Errorf("%s has data of type %s, want an image", what, kind)
		return
	}
	img, format, err := image.Decode(bytes.NewReader(data))
	if errors.Is(err, image.ErrFormat) {
		return
	}
	if err != nil {
		t.Errorf("decoding %s: %v, want an image", what, err)
		return
	}
	if _, _, ok := parseSize(size); !ok {
		return
	}
	if got := fmt.Sprintf("%dx%d", img.Bounds().Dx(), img.Bounds().Dy()); got != size {
		t.Errorf("%s is a %s of %s, want %s", what, format, got, size)
	}
}

func checkImages(t testing.TB, b backendTest) {
	if err := b.generate(t, b.imageRequest(t, b.opts.ImageModel)); err != nil {
		t.Fatalf("GenerateImages returned the error %v for a plain request, want nil", err)
	}
	for _, change := range []func(*llm.ImageRequest){
		func(*llm.ImageRequest) {},
		func(r *llm.ImageRequest) { r.ResponseFormat, r.Quality = llm.ImageFormatBase64, "standard" },
		func(r *llm.ImageRequest) { r.Size = llm.ImageSizeAuto },
		func(r *llm.ImageRequest) { r.Prompt = "\U0001f642 \"quoted\"\n\x00" },
		func(r *llm.ImageRequest) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`{"a":1}`)} },
	} {
		req := b.imageRequest(t, b.opts.ImageModel)
		req.N = new(2)
		change(req)
		if err := b.generate(t, req); err != nil {
			wantClientError(t, err)
		}
	}
	const calls = 4
	plain := *b.imageRequest(t, b.opts.ImageModel)
	runConcurrently(t, calls, func(int) {
		req := plain
		if resp, err := ability.Call(llmhttp.ImageGenerator.GenerateImages)(t.Context(), b.Backend, &req); err != nil || len(resp.Data) != 1 {
			t.Errorf("one of %d concurrent calls of GenerateImages returned %+v and the error %v, want one image", calls, resp, err)
		}
	})
}

func checkImageSizes(t testing.TB, b backendTest) {
	sizes, err := ability.Call(llmhttp.ImageSizer.ImageSizes)(t.Context(), b.Backend, b.opts.ImageModel)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the Backend is not an ImageSizer")
	}
	if err != nil {
		t.Fatalf("ImageSizes returned the error %v, want nil", err)
	}
	for i, size := range sizes {
		if _, _, ok := parseSize(size); !ok || slices.Contains(sizes[:i], size) {
			t.Errorf("ImageSizes returned %q, want unique sizes such as 1024x1024; %q is not", sizes, size)
		}
	}
	if b.opts.AnyModel {
		return
	}
	for _, model := range unknownModels(b.opts.ImageModel) {
		var e *llm.Error
		if sizes, err := ability.Call(llmhttp.ImageSizer.ImageSizes)(t.Context(), b.Backend, model); !errors.As(err, &e) || e.Status != http.StatusNotFound {
			t.Errorf(
				"ImageSizes of the model %q, which does not exist, returned %q and the error %v; want ModelNotFound",
				model,
				sizes,
				err,
			)
		}
	}
}
