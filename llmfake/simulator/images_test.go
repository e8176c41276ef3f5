package simulator_test

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

func TestBackend_ImageSizes(t *testing.T) {
	for model, want := range map[string][]string{
		simulator.ModelImageLarge: {"1024x1024", "1024x1792", "1792x1024"},
		simulator.ModelImageSmall: {"256x256", "512x512", "1024x1024"},
	} {
		sizes, err := simulator.New().ImageSizes(t.Context(), model)
		require.NoError(t, err)
		assert.Equal(t, want, sizes)
		for _, size := range sizes {
			resp, err := simulator.New().GenerateImages(t.Context(), &llm.ImageRequest{Model: model, Prompt: "a fox", Size: size})
			require.NoError(t, err)
			require.Len(t, resp.Data, 1)
			assert.Nil(t, resp.Usage)
			assert.Equal(t, "Discs over a gradient: a fox", resp.Data[0].RevisedPrompt)
			img, err := png.Decode(bytes.NewReader(resp.Data[0].Data))
			require.NoError(t, err)
			assert.Equal(t, image.Pt(sizeOf(t, size)), img.Bounds().Size())
			assert.Greater(t, countColors(img), 64)
		}
	}
	_, err := simulator.New().ImageSizes(t.Context(), simulator.ModelChat)
	assert.Equal(t, llm.ModelNotFound(simulator.ModelChat), err)
}

func sizeOf(t *testing.T, size string) (int, int) {
	sizes := map[string][2]int{
		"256x256": {256, 256}, "512x512": {512, 512}, "1024x1024": {1024, 1024},
		"1024x1792": {1024, 1792}, "1792x1024": {1792, 1024},
	}
	require.Contains(t, sizes, size)
	return sizes[size][0], sizes[size][1]
}

func countColors(img image.Image) int {
	colors := map[color.Color]bool{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			colors[img.At(x, y)] = true
		}
	}
	return len(colors)
}

func TestBackend_GenerateImagesDiffer(t *testing.T) {
	generate := func(prompt, quality string) []llm.Image {
		n := 4
		resp, err := simulator.New().GenerateImages(t.Context(),
			&llm.ImageRequest{Model: simulator.ModelImageSmall, Prompt: prompt, Size: "256x256", Quality: quality, N: &n})
		require.NoError(t, err)
		require.Len(t, resp.Data, n)
		return resp.Data
	}
	seen := map[string]bool{}
	for _, images := range [][]llm.Image{generate("a fox", ""), generate("a fax", ""), generate("", ""), generate("a fox", "hd")} {
		for _, img := range images {
			assert.False(t, seen[string(img.Data)])
			seen[string(img.Data)] = true
		}
	}
	assert.Equal(t, generate("a fox", ""), generate("a fox", "standard"), "the same prompt gives the same images")
}

func TestBackend_GenerateImagesErrors(t *testing.T) {
	b := simulator.New()
	for _, size := range []string{"256x257", "1024x1792", "0x0", "x", "256x256 "} {
		_, err := b.GenerateImages(t.Context(), &llm.ImageRequest{Model: simulator.ModelImageSmall, Prompt: "x", Size: size})
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 400, e.Status)
		assert.Equal(t, "size", e.Param)
	}
	_, err := b.GenerateImages(t.Context(), &llm.ImageRequest{Model: simulator.ModelEmbed, Prompt: "x"})
	assert.Equal(t, llm.ModelNotFound(simulator.ModelEmbed), err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.GenerateImages(ctx, &llm.ImageRequest{Model: simulator.ModelImageSmall, Prompt: "x"})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestBackend_EditsAsTheKitRequires(t *testing.T) {
	llmhttptest.TestBackend(t, simulator.New(), llmhttptest.BackendOptions{ImageModel: simulator.ModelImageSmall, ImageEditModel: simulator.ModelImageSmall})
}

// An edit depends on the files, also behind the bytes that tell what they are.
func TestBackend_EditImages(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n"
	padding := strings.Repeat("x", 1000)
	edit := func(image, mask string) ([]llm.Image, error) {
		req := &imageedit.Request{
			ImageRequest: llm.ImageRequest{Model: simulator.ModelImageSmall, Prompt: "a fox"},
			Images:       []*llm.File{{Size: int64(len(image)), Content: strings.NewReader(image)}},
		}
		if mask != "" {
			req.Mask = &llm.File{Size: int64(len(mask)), Content: strings.NewReader(mask)}
		}
		resp, err := simulator.New().EditImages(t.Context(), req)
		if err != nil {
			return nil, err
		}
		return resp.Data, nil
	}
	seen := map[string]bool{}
	for _, files := range [][2]string{{png + padding + "a", ""}, {png + padding + "b", ""}, {png, ""}, {png, png}} {
		images, err := edit(files[0], files[1])
		require.NoError(t, err)
		seen[string(images[0].Data)] = true
		again, err := edit(files[0], files[1])
		require.NoError(t, err)
		assert.Equal(t, images, again)
	}
	assert.Len(t, seen, 4)
	_, err := edit("Hello", "")
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "image", e.Param)
}

func BenchmarkBackend_GenerateImages(b *testing.B) {
	for b.Loop() {
		_, err := simulator.New().GenerateImages(b.Context(), &llm.ImageRequest{Model: simulator.ModelImageSmall, Prompt: "a fox"})
		require.NoError(b, err)
	}
}
