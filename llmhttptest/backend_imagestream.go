// Checks of streams of images.

package llmhttptest

import (
	"context"
	"fmt"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A drawnReply is what a Backend has yielded for a request for a stream of images.
type drawnReply struct {
	chunks, complete int
	partial          bool // the last image was not complete
	err              error
}

// drawStream iterates over the reply to req as long as more returns true, and reports faults of the
// stream.
func (b *backendTest) drawStream(ctx context.Context, t testing.TB, req *llm.ImageRequest, more func(r drawnReply) bool) drawnReply {
	t.Helper()
	return b.readDrawn(ctx, t, "StreamImages", req, func(ctx context.Context) llm.ImageStream {
		return llmhttp.StreamImages(ctx, b.Backend, req)
	}, more)
}

// readDrawn is drawStream for the stream that the method name returns, which draw calls with a request of
// which req is a part.
func (b *backendTest) readDrawn(
	ctx context.Context,
	t testing.TB,
	name string,
	req *llm.ImageRequest,
	draw func(ctx context.Context) llm.ImageStream,
	more func(r drawnReply) bool,
) (r drawnReply) {
	t.Helper()
	req.Stream = true
	size := req.Size // before the Backend may change req
	failed := b.call(ctx, func(ctx context.Context) {
		stream := draw(ctx)
		if stream == nil {
			panic(name + " returned a nil stream, want one that yields an error")
		}
		ended := ""
		stream(func(c *llm.ImageChunk, err error) bool {
			if ended != "" {
				t.Errorf("the stream yielded after %s, want it to return", ended)
				return false
			}
			if err != nil {
				r.err, ended = err, "an error"
				return false
			}
			if r.chunks++; c != nil {
				r.add(t, c, size)
			}
			if !more(r) {
				ended = "yield returned false"
				return false
			}
			return true
		})
	})
	if failed != nil {
		t.Fatalf("%s: %v", name, failed)
	}
	return r
}

// add adds a chunk to the reply and reports its faults.
func (r *drawnReply) add(t testing.TB, c *llm.ImageChunk, size string) {
	t.Helper()
	what := fmt.Sprintf("chunk %d", r.chunks-1)
	wantConsistentUsage(t, what, c.Usage)
	if c.Image == nil {
		if c.Partial {
			t.Errorf("%s is Partial and has no Image, want both or neither", what)
		}
		return
	}
	wantJSON(t, what, c.Image, c.Image.Extra)
	switch {
	case len(c.Image.Data) > 0:
		wantImage(t, what, c.Image.Data, size)
	case !isImageURL(c.Image.URL):
		t.Errorf("%s has neither Data nor a URL, want one of them", what)
	}
	if r.partial = c.Partial; !c.Partial {
		r.complete++
	}
}

func all(drawnReply) bool { return true }

func checkImageStream(t testing.TB, b backendTest) {
	for _, partial := range []*int{nil, new(0), new(2)} {
		req := b.imageRequest(t, b.opts.ImageModel)
		req.PartialImages = partial
		r := b.drawStream(t.Context(), t, req, all)
		switch {
		case r.err != nil && partial == nil:
			t.Fatalf("StreamImages yielded the error %v for a plain request, want none", r.err)
		case r.err != nil:
			wantClientError(t, r.err)
		case r.complete != 1:
			t.Errorf("StreamImages yielded %d complete images, want 1", r.complete)
		case r.partial:
			t.Error("the last image that StreamImages yielded is Partial, want a complete one")
		}
	}
}
