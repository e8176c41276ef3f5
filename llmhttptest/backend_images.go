package llmhttptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // what images may be encoded in
	_ "image/jpeg"
	_ "image/png"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
)

func checkModels(t testing.TB, b backendTest) {
	var lists [2][]string
	for i := range lists {
		models, err := b.forward().ListModels(t.Context())
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("the Backend does not list models")
		}
		if err != nil {
			t.Fatalf("ListModels: error %v", err)
		}
		for _, m := range models {
			checkJSON(t, fmt.Sprintf("model %q", m.ID), m, m.Extra)
			if m.ID == "" || slices.Contains(lists[i], m.ID) {
				t.Errorf("ListModels: the ID %q is empty or not unique", m.ID)
			}
			if m.Created < 0 {
				t.Errorf("ListModels: model %q was created at %d", m.ID, m.Created)
			}
			lists[i] = append(lists[i], m.ID)
		}
	}
	if !slices.Equal(lists[0], lists[1]) {
		t.Errorf("ListModels: the list changed from %q to %q", lists[0], lists[1])
	}
	for _, id := range []string{b.ChatModel, b.ImageModel, b.EmbeddingModel} {
		if id != "" && !b.AnyModel && !slices.Contains(lists[0], id) {
			t.Errorf("ListModels: the model %q is not among %q", id, lists[0])
		}
	}
}

// supported reports an error unless err shows that a Backend that is said to
// have a model has the method for it.
func supported(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("BackendOptions name a model, but: %v", err)
	}
}

// smallest returns the size with the fewest pixels that the image model allows.
func (b *backendTest) smallest(t testing.TB) string {
	sizes, err := b.forward().ImageSizes(t.Context(), b.ImageModel)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("ImageSizes: error %v", err)
	}
	if len(sizes) == 0 {
		return "1024x1024"
	}
	return slices.MinFunc(sizes, func(a, b string) int {
		aw, ah, _ := parseSize(a)
		bw, bh, _ := parseSize(b)
		return aw*ah - bw*bh
	})
}

// parseSize parses a size such as "1024x1024".
func parseSize(s string) (width, height int, ok bool) {
	w, h, ok := strings.Cut(s, "x")
	width, err1 := strconv.Atoi(w)
	height, err2 := strconv.Atoi(h)
	return width, height, ok && err1 == nil && err2 == nil && width > 0 && height > 0 && fmt.Sprintf("%dx%d", width, height) == s
}

// generate draws n images, and reports what is wrong with them.
func (b *backendTest) generate(t testing.TB, n *int, change func(*llmhttp.ImageRequest)) error {
	t.Helper()
	req := &llmhttp.ImageRequest{Model: b.ImageModel, Prompt: "A red square.", N: n, Size: b.smallest(t), ResponseFormat: llmhttp.ImageFormatURL}
	change(req)
	want, size := req.Count(), req.Size
	var resp *llmhttp.ImageResponse
	var err error
	if failed := b.call(t.Context(), func(ctx context.Context) { resp, err = b.forward().GenerateImages(ctx, req) }); failed != nil {
		t.Fatalf("GenerateImages: %v", failed)
	}
	supported(t, err)
	if err != nil {
		return err
	}
	if resp == nil {
		t.Fatal("GenerateImages returned neither a response nor an error")
	}
	if len(resp.Data) != want {
		t.Errorf("GenerateImages returned %d images, want %d", len(resp.Data), want)
	}
	checkJSON(t, "the response", resp, resp.Extra)
	if resp.Usage != nil {
		checkUsage(t, "the response", resp.Usage)
	}
	for i, img := range resp.Data {
		at := fmt.Sprintf("image %d", i)
		checkJSON(t, at, img, img.Extra)
		switch {
		case len(img.Data) > 0:
			checkPicture(t, at, img.Data, size)
		case img.URL == "":
			t.Errorf("%s has neither Data nor a URL", at)
		}
		if img.URL == "" {
			continue
		}
		u, err := url.Parse(img.URL)
		switch {
		case err != nil:
			t.Errorf("%s has a bad URL: %v", at, err)
		case u.Scheme == "data":
		case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			t.Errorf("%s has a URL that no client can follow: %.100q", at, img.URL)
		}
	}
	return nil
}

// checkPicture reports an error unless data is an image, and of the given size
// if it is in a format that the standard library knows.
func checkPicture(t testing.TB, at string, data []byte, size string) {
	t.Helper()
	if kind := http.DetectContentType(data); !strings.HasPrefix(kind, "image/") {
		t.Errorf("%s is not an image, but %s", at, kind)
		return
	}
	img, format, err := image.Decode(bytes.NewReader(data))
	if errors.Is(err, image.ErrFormat) {
		return
	}
	if err != nil {
		t.Errorf("%s cannot be decoded: %v", at, err)
		return
	}
	if got := fmt.Sprintf("%dx%d", img.Bounds().Dx(), img.Bounds().Dy()); got != size {
		t.Errorf("%s is a %s of %s, want %s", at, format, got, size)
	}
}

func checkImages(t testing.TB, b backendTest) {
	need(t, b.ImageModel)
	plain := func(*llmhttp.ImageRequest) {}
	if err := b.generate(t, nil, plain); err != nil {
		t.Fatalf("GenerateImages of a plain request: error %v", err)
	}
	for _, change := range []func(*llmhttp.ImageRequest){
		plain,
		func(r *llmhttp.ImageRequest) { r.ResponseFormat, r.Quality = llmhttp.ImageFormatBase64, "standard" },
		func(r *llmhttp.ImageRequest) { r.Prompt = "\U0001f642 \"quoted\"\n\x00" },
		func(r *llmhttp.ImageRequest) { r.Extra = llmhttp.Extra{"x_unknown": json.RawMessage(`{"a":1}`)} },
	} {
		if err := b.generate(t, ptr(2), change); err != nil {
			checkRefusal(t, err)
		}
	}
	together(t, 4, func(int) {
		req := &llmhttp.ImageRequest{Model: b.ImageModel, Prompt: "A blue square.", Size: b.smallest(t), ResponseFormat: llmhttp.ImageFormatURL}
		if resp, err := b.forward().GenerateImages(t.Context(), req); err != nil || len(resp.Data) != 1 {
			t.Errorf("one of 4 concurrent calls of GenerateImages: %+v, error %v", resp, err)
		}
	})
}

func checkImageSizes(t testing.TB, b backendTest) {
	need(t, b.ImageModel)
	sizes, err := b.forward().ImageSizes(t.Context(), b.ImageModel)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the Backend does not tell image sizes")
	}
	if err != nil {
		t.Fatalf("ImageSizes: error %v", err)
	}
	for i, size := range sizes {
		if _, _, ok := parseSize(size); !ok || slices.Contains(sizes[:i], size) {
			t.Errorf("ImageSizes: %q, among %q, is not a size or not unique", size, sizes)
		}
	}
	if b.AnyModel {
		return
	}
	for _, model := range unknownModels(b.ImageModel) {
		var e *llmhttp.Error
		if sizes, err := b.forward().ImageSizes(t.Context(), model); !errors.As(err, &e) || e.Status != http.StatusNotFound {
			t.Errorf("ImageSizes of a model that does not exist: %q, error %v; want ModelNotFound", sizes, err)
		}
	}
}

func checkImageUnknownModel(t testing.TB, b backendTest) {
	need(t, b.ImageModel)
	if b.AnyModel {
		t.Skip("the Backend knows any model")
	}
	for _, model := range unknownModels(b.ImageModel) {
		err := b.generate(t, nil, func(r *llmhttp.ImageRequest) { r.Model = model })
		if err == nil {
			t.Errorf("the model %q does not exist, but draws", model)
			continue
		}
		checkRefusal(t, err)
	}
}

func checkImageCancelled(t testing.TB, b backendTest) {
	need(t, b.ImageModel)
	req := &llmhttp.ImageRequest{Model: b.ImageModel, Prompt: "A red square.", Size: b.smallest(t), ResponseFormat: llmhttp.ImageFormatURL}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.call(ctx, func(ctx context.Context) { _, _ = b.forward().GenerateImages(ctx, req) }); err != nil {
		t.Errorf("GenerateImages whose context was cancelled: %v", err)
	}
}
