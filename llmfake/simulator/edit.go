// Edits of images.

package simulator

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
)

var (
	_ imageedit.Editor   = (*Backend)(nil)
	_ imageedit.Streamer = (*Backend)(nil)
)

// EditImages implements [imageedit.Editor].
func (b *Backend) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	if err := checkDrawing(&req.ImageRequest); err != nil {
		return nil, err
	}
	return Edit(ctx, req)
}

// StreamImageEdits implements [imageedit.Streamer].
func (b *Backend) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	if err := checkDrawing(&req.ImageRequest); err != nil {
		return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, err) }
	}
	return EditStream(ctx, req, b.Delay)
}

// Edit is like [Backend.EditImages] for any model and any size of at most [MaxSide].
func Edit(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	d, err := newEdit(req)
	if err != nil {
		return nil, err
	}
	return d.drawAll(ctx)
}

// EditStream is like [Backend.StreamImageEdits] for any model and any size of at most [MaxSide]. It waits
// for the delay before each chunk.
func EditStream(ctx context.Context, req *imageedit.Request, delay time.Duration) llm.ImageStream {
	return stream(ctx, delay, func() (*drawing, error) { return newEdit(req) })
}

// newEdit returns the drawing of a request, which depends on the content of its files too.
func newEdit(req *imageedit.Request) (*drawing, error) {
	d, err := newDrawing(&req.ImageRequest)
	if err != nil {
		return nil, err
	}
	for _, file := range req.Files() {
		sum, err := sumOf(file)
		if err != nil {
			return nil, err
		}
		d.seed += string(sum)
	}
	return d, nil
}

// sumOf returns the SHA-256 of the content of an image.
func sumOf(file *llm.File) ([]byte, error) {
	content := sha256.New()
	head := make([]byte, 512)
	n, err := io.ReadFull(io.TeeReader(file.Open(), content), head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, err
	}
	if !strings.HasPrefix(http.DetectContentType(head[:n]), "image/") {
		return nil, llm.Errorf(http.StatusBadRequest, "invalid_value", "Invalid file format. Expected an image.").WithParam("image")
	}
	if _, err := io.Copy(content, io.NewSectionReader(file.Content, int64(n), file.Size-int64(n))); err != nil {
		return nil, err
	}
	return content.Sum(nil), nil
}
