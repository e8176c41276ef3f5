package clients

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	goopenai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// picture returns a small PNG of one color.
func picture(t *testing.T, c color.Color) *bytes.Reader {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, 4, 4))
	for i := range 16 {
		img.Set(i%4, i/4, c)
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return bytes.NewReader(b.Bytes())
}

func pictureFile(t *testing.T, c color.Color, name string) io.Reader {
	t.Helper()
	return openaigo.File(picture(t, c), name, "image/png")
}

// sizeOfData returns the size of an image in base64.
func sizeOfData(t *testing.T, data string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(data)
	require.NoError(t, err)
	width, height := pngSize(t, b)
	return fmt.Sprintf("%dx%d", width, height)
}

func TestOpenAIImageEdit(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newOpenAIClient(s)
	one := openaigo.ImageEditParams{
		Model: "demo-image-small", Prompt: "A hat", Size: "256x256", N: openaigo.Int(2),
		Image: openaigo.ImageEditParamsImageUnion{OfFile: pictureFile(t, color.Black, "a.png")},
	}
	res, err := client.Images.Edit(testContext(t), one)
	require.NoError(t, err)
	require.Len(t, res.Data, 2)
	assert.Equal(t, "256x256", sizeOfData(t, res.Data[0].B64JSON))

	several, err := client.Images.Edit(testContext(t), openaigo.ImageEditParams{
		Model: "demo-image-large", Prompt: "A hat", Size: "auto", Quality: "low", Background: "opaque", OutputCompression: openaigo.Int(80),
		Image: openaigo.ImageEditParamsImageUnion{OfFileArray: []io.Reader{pictureFile(t, color.Black, "a.png"), pictureFile(t, color.White, "b.png")}},
		Mask:  pictureFile(t, color.Transparent, "mask.png"),
	})
	require.NoError(t, err)
	require.Len(t, several.Data, 1)
	assert.Equal(t, "1024x1024", sizeOfData(t, several.Data[0].B64JSON))
	usage := s.usage(t)
	assert.EqualValues(t, 2, usage.Requests)
	assert.EqualValues(t, 3, usage.Images)

	var apiErr *openaigo.Error
	_, err = client.Images.Edit(testContext(t), openaigo.ImageEditParams{Model: "demo-image-small", Prompt: "A hat"})
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, "image", apiErr.Param)
	_, err = client.Images.Edit(testContext(t), openaigo.ImageEditParams{Model: "demo-image-small", Prompt: "A hat",
		Image: openaigo.ImageEditParamsImageUnion{OfFile: openaigo.File(strings.NewReader("Hello"), "a.txt", "text/plain")}})
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, http.StatusBadRequest, apiErr.StatusCode)
	assert.Equal(t, "image", apiErr.Param)
}

func TestGoOpenAIImageEdit(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)
	res, err := client.CreateEditImage(testContext(t), goopenai.ImageEditRequest{
		Model: "demo-image-small", Prompt: "A hat", N: 1, Size: "256x256", ResponseFormat: goopenai.CreateImageResponseFormatB64JSON,
		Image: picture(t, color.Black), Mask: picture(t, color.Transparent),
	})
	require.NoError(t, err)
	require.Len(t, res.Data, 1)
	assert.Equal(t, "256x256", sizeOfData(t, res.Data[0].B64JSON))
}

// Streams of generations and of edits: previews, then the image with the usage.
func TestOpenAIImageStream(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newOpenAIClient(s)
	generation := client.Images.GenerateStreaming(testContext(t), openaigo.ImageGenerateParams{
		Model: "demo-image-small", Prompt: "A hat", Size: "256x256", PartialImages: openaigo.Int(2),
	})
	var kinds []string
	for generation.Next() {
		event := generation.Current()
		kinds = append(kinds, fmt.Sprintf("%s %s %s %s %d", event.Type, sizeOfData(t, event.B64JSON), event.Size, event.OutputFormat, event.PartialImageIndex))
	}
	require.NoError(t, generation.Err())
	assert.Equal(t, []string{
		"image_generation.partial_image 256x256 256x256 png 0", "image_generation.partial_image 256x256 256x256 png 1",
		"image_generation.completed 256x256 256x256 png 0",
	}, kinds)

	edit := client.Images.EditStreaming(testContext(t), openaigo.ImageEditParams{
		Model: "demo-image-small", Prompt: "A hat", PartialImages: openaigo.Int(1),
		Image: openaigo.ImageEditParamsImageUnion{OfFile: pictureFile(t, color.Black, "a.png")},
	})
	kinds = nil
	for edit.Next() {
		event := edit.Current()
		kinds = append(kinds, event.Type+" "+sizeOfData(t, event.B64JSON))
	}
	require.NoError(t, edit.Err())
	assert.Equal(t, []string{"image_edit.partial_image 1024x1024", "image_edit.completed 1024x1024"}, kinds)
	assert.EqualValues(t, 2, s.usage(t).Images)

	missing := client.Images.GenerateStreaming(testContext(t), openaigo.ImageGenerateParams{Model: "missing", Prompt: "A hat"})
	assert.False(t, missing.Next())
	var apiErr *openaigo.Error
	require.ErrorAs(t, missing.Err(), &apiErr)
	assert.Equal(t, http.StatusNotFound, apiErr.StatusCode)
}
