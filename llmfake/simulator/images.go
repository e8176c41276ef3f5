// Images.

package simulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// sizesOf returns the sizes of an image model, or nil if model is not one.
func sizesOf(model string) []string {
	switch model {
	case ModelImageLarge:
		return []string{"1024x1024", "1024x1792", "1792x1024"}
	case ModelImageSmall:
		return []string{"256x256", "512x512", "1024x1024"}
	}
	return nil
}

// ImageSizes implements [llmhttp.ImageSizer].
func (b *Backend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	sizes := sizesOf(model)
	if sizes == nil {
		return nil, llm.ModelNotFound(model)
	}
	return sizes, nil
}

// GenerateImages implements [llmhttp.ImageGenerator].
func (b *Backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	if err := checkDrawing(req); err != nil {
		return nil, err
	}
	return Draw(ctx, req)
}

// checkDrawing returns the error for a model that draws no images, or none of the size.
func checkDrawing(req *llm.ImageRequest) error {
	sizes := sizesOf(req.Model)
	if sizes == nil {
		return llm.ModelNotFound(req.Model)
	}
	if size := sizeOf(req); !slices.Contains(sizes, size) {
		e := llm.Errorf(
			http.StatusBadRequest,
			"invalid_value",
			"Invalid value: '%.32s'. Supported values are: %s.",
			size,
			strings.Join(sizes, ", "),
		)
		e.Param = "size"
		return e
	}
	return nil
}

// StreamImages implements [llmhttp.ImageStreamer].
func (b *Backend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	if err := checkDrawing(req); err != nil {
		return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, err) }
	}
	return DrawStream(ctx, req, b.Delay)
}

// MaxSide is the largest width and height of an image that [Draw] draws, in pixels.
const MaxSide = 4096

// defaultSize is the size of images whose size is left to the model.
const defaultSize = "1024x1024"

// sizeOf returns the size of the images that req asks for.
func sizeOf(req *llm.ImageRequest) string {
	if req.Size == llm.ImageSizeAuto {
		return defaultSize
	}
	return cmp.Or(req.Size, defaultSize)
}

// A drawing is what is drawn for a request.
type drawing struct {
	req                  *llm.ImageRequest
	seed                 string
	width, height, discs int
}

// newDrawing returns the drawing of a request, which depends on its prompt.
func newDrawing(req *llm.ImageRequest) (*drawing, error) {
	size, d := sizeOf(req), &drawing{req: req, seed: req.Prompt, discs: 8}
	if _, err := fmt.Sscanf(size, "%dx%d", &d.width, &d.height); err != nil || min(d.width, d.height) < 1 || max(d.width, d.height) > MaxSide {
		e := llm.Errorf(
			http.StatusBadRequest,
			"invalid_value",
			"Invalid value: '%.32s'. The width and the height must be 1 to %d.",
			size,
			MaxSide,
		)
		e.Param = "size"
		return nil, e
	}
	if req.Quality == "hd" {
		d.discs = 16
	}
	return d, nil
}

// draw returns image i, with the first discs.
func (d *drawing) draw(ctx context.Context, i, discs int) (*llm.Image, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	data, err := drawPNG(d.seed, i, d.width, d.height, discs)
	return &llm.Image{Data: data, RevisedPrompt: "Discs over a gradient: " + d.req.Prompt}, err
}

// Draw is like [Backend.GenerateImages] for any model and any size of at most [MaxSide].
func Draw(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	d, err := newDrawing(req)
	if err != nil {
		return nil, err
	}
	return d.drawAll(ctx)
}

// drawAll returns the complete images.
func (d *drawing) drawAll(ctx context.Context) (*llm.ImageResponse, error) {
	resp := new(llm.ImageResponse)
	for i := range d.req.Count() {
		image, err := d.draw(ctx, i, d.discs)
		if err != nil {
			return nil, err
		}
		resp.Data = append(resp.Data, *image)
	}
	return resp, nil
}

// DrawStream is like [Backend.StreamImages] for any model and any size of at most [MaxSide]. An image
// that is not complete has fewer discs. It waits for the delay before each chunk.
func DrawStream(ctx context.Context, req *llm.ImageRequest, delay time.Duration) llm.ImageStream {
	return stream(ctx, delay, func() (*drawing, error) { return newDrawing(req) })
}

// stream returns a stream of the drawing that newDrawing returns.
func stream(ctx context.Context, delay time.Duration, newDrawing func() (*drawing, error)) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		s := &modelreply.Sender[*llm.ImageChunk]{Ctx: ctx, Delay: delay, Yield: yield}
		d, err := newDrawing()
		if err != nil {
			yield(nil, err)
			return
		}
		steps := 1 // of each image; the last one is complete
		if d.req.PartialImages != nil {
			steps += *d.req.PartialImages
		}
		for i := range d.req.Count() * steps {
			step := i%steps + 1
			image, err := d.draw(ctx, i/steps, d.discs*step/steps)
			if err != nil {
				yield(nil, err)
				return
			}
			if !s.Send(&llm.ImageChunk{Image: image, Partial: step < steps}) {
				return
			}
		}
	}
}

// The palette of an image has several layers with the same number of shades. The
// gradient uses the first layer, and each disc moves its pixels to the next layer.
const (
	shades = 64
	layers = 4
)

// drawPNG returns a PNG image. The same arguments give the same image.
func drawPNG(text string, index, width, height, discs int) ([]byte, error) {
	seed := sha256.Sum256(fmt.Appendf(nil, "%d %s", index, text))
	rng := rand.New(rand.NewChaCha8(seed))
	img := image.NewPaletted(image.Rect(0, 0, width, height), palette(rng))
	drawGradient(img, rng)
	for range discs {
		drawDisc(img, rng)
	}
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := e.Encode(&b, img); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// palette returns the layers of shades between two random hues. Each layer is
// lighter than the one before.
func palette(rng *rand.Rand) color.Palette {
	from := 360 * rng.Float64()
	to := from + 60 + 120*rng.Float64()
	p := make(color.Palette, 0, shades*layers)
	for layer := range layers {
		for shade := range shades {
			t := float64(shade) / (shades - 1)
			light := 0.25 + 0.35*t + 0.12*float64(layer)*(1-t/2)
			p = append(p, hsl(from+(to-from)*t, 0.65, light))
		}
	}
	return p
}

// hsl returns the color with the given hue in degrees, and saturation and
// lightness from 0 to 1.
func hsl(hue, saturation, lightness float64) color.RGBA {
	channel := func(n float64) uint8 {
		k := math.Mod(n+hue/30, 12)
		a := saturation * min(lightness, 1-lightness)
		return uint8(math.Round(255 * (lightness - a*max(-1, min(k-3, 9-k, 1)))))
	}
	return color.RGBA{channel(0), channel(8), channel(4), 255}
}

// drawGradient fills img with the shades of the first layer, from one corner to
// the opposite one.
func drawGradient(img *image.Paletted, rng *rand.Rand) {
	width, height := img.Rect.Dx(), img.Rect.Dy()
	across, down := 1+rng.IntN(255), 1+rng.IntN(255)
	flip := rng.IntN(2) == 0
	total := across*(width-1) + down*(height-1) + 1
	for y := range height {
		row := img.Pix[y*img.Stride:][:width]
		// The shade is a fixed-point number that grows by step per pixel.
		at := uint64(y*down) * shades << 24 / uint64(total)
		step := uint64(across) * shades << 24 / uint64(total)
		for x := range row {
			row[x] = uint8(at >> 24)
			at += step
		}
		if flip {
			slices.Reverse(row)
		}
	}
}

// drawDisc moves the pixels of a random disc to the next layer. Those in the last
// layer are not changed.
func drawDisc(img *image.Paletted, rng *rand.Rand) {
	width, height := img.Rect.Dx(), img.Rect.Dy()
	radius := float64(min(width, height)) * (0.05 + 0.25*rng.Float64())
	cx, cy := rng.Float64()*float64(width), rng.Float64()*float64(height)
	for y := max(0, int(cy-radius)); y < min(height, int(cy+radius)+1); y++ {
		dy := float64(y) + 0.5 - cy
		half := math.Sqrt(max(0, radius*radius-dy*dy))
		left, right := max(0, int(cx-half)), min(width, int(cx+half)+1)
		for x := left; x < right; x++ {
			if p := &img.Pix[y*img.Stride+x]; *p < shades*(layers-1) {
				*p += shades
			}
		}
	}
}
