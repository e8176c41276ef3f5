package imageedit_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

// A streamer is a Backend that streams edits.
type streamer struct {
	backend
	stream func(req *imageedit.Request) llm.ImageStream
}

func (b streamer) StreamImageEdits(_ context.Context, req *imageedit.Request) llm.ImageStream {
	return b.stream(req)
}

// streaming returns a Backend whose streams have chunks.
func streaming(chunks ...*llm.ImageChunk) streamer {
	return streamer{nil, func(*imageedit.Request) llm.ImageStream {
		return func(yield func(*llm.ImageChunk, error) bool) {
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
		}
	}}
}

// event returns an event with an image.
func event(kind, data, members string) string {
	kind = "image_edit." + kind
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"b64_json\":\"" + base64.StdEncoding.EncodeToString([]byte(data)) + "\"," + members + "}\n\n"
}

// What a client gets of a stream of two images: previews, numbered for each image, and the usage with
// the last image.
func TestRoutes_Events(t *testing.T) {
	chunks := []*llm.ImageChunk{
		{},
		{Image: &llm.Image{Data: []byte("p1")}, Partial: true},
		{Image: &llm.Image{URL: "data:image/png;base64,cDI=", RevisedPrompt: "r"}, Partial: true},
		{Image: &llm.Image{Data: []byte("a"), Extra: llm.Extra{"size": json.RawMessage(`"2x3"`), "created_at": json.RawMessage(`7`), "usage": json.RawMessage(`1`), "x": json.RawMessage(`{"y":1}`)}}},
		{Image: &llm.Image{Data: []byte("p3")}, Partial: true},
		{Image: &llm.Image{Data: []byte("b")}},
		{Usage: &llm.Usage{PromptTokens: 5, CompletionTokens: 7}},
	}
	synctest.Test(t, func(t *testing.T) {
		var got imageedit.Request
		b := streaming(chunks...)
		stream := b.stream
		b.stream = func(req *imageedit.Request) llm.ImageStream {
			got = *req
			return stream(req)
		}
		s := newServer(t, b, nil)
		w := s.Post(path, endpointtest.Form(t, `{"image":"x","model":"m","prompt":"p","n":2,"stream":"True","partial_images":2,"output_format":"webp"}`))
		assert.Equal(t, 200, w.Code)
		assert.Equal(t, "text/event-stream; charset=utf-8", w.Header().Get("Content-Type"))
		members := func(index, size string) string {
			return `"background":"auto","created_at":946684800,"output_format":"webp",` + index + `"quality":"auto","size":"` + size + `"`
		}
		assert.Equal(t, event("partial_image", "p1", members(`"partial_image_index":0,`, "auto"))+
			event("partial_image", "p2", members(`"partial_image_index":1,`, "auto"))+
			event("completed", "a", strings.Replace(members("", "2x3"), "946684800", "7", 1)+`,"x":{"y":1}`)+
			event("partial_image", "p3", members(`"partial_image_index":0,`, "auto"))+
			event("completed", "b", members("", "auto")+`,"usage":{"input_tokens":5,"output_tokens":7,"total_tokens":12}`), w.Body.String())
		assert.True(t, got.Stream)
		assert.Equal(t, 2, *got.PartialImages)
		assert.Len(t, got.Images, 1)
		assert.Equal(t, llmhttp.Units{PromptTokens: 5, CompletionTokens: 7, Images: 2}, s.Records[0].Units)
		assert.True(t, s.Summaries[0].Streamed)
		assert.Equal(t, 7, s.Summaries[0].Chunks)
	})
}

// A stream that fails before its first event is an error, and one that fails later is cut after an event.
func TestRoutes_StreamFails(t *testing.T) {
	partial := &llm.ImageChunk{Image: &llm.Image{Data: []byte("p")}, Partial: true}
	for name, chunks := range map[string][]*llm.ImageChunk{
		"no chunk":           nil,
		"no image":           {{}},
		"an image elsewhere": {{Image: &llm.Image{URL: "https://example.com/a.png"}, Partial: true}},
		"an empty image":     {{Image: &llm.Image{}, Partial: true}},
	} {
		t.Run(name, func(t *testing.T) {
			newServer(t, streaming(chunks...), nil).PostRefused(path, asJSON(image+`,"stream":true`), 500)
		})
	}
	s := newServer(t, streaming(partial), nil)
	assert.Panics(t, func() { s.Post(path, asJSON(image+`,"stream":true`)) }, "the connection is cut")
	assert.Error(t, s.Summaries[0].Err)
}

// A Backend without StreamImageEdits, or that says that it has none, replies with its complete images. One
// that edits nothing is not asked to stream.
func TestRoutes_WithoutStreamer(t *testing.T) {
	failing := func(err error) streamer {
		return streamer{drawing(nil), func(req *imageedit.Request) llm.ImageStream {
			req.Prompt, req.N, req.Images = "changed", nil, nil
			return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, err) }
		}}
	}
	for name, test := range map[string]struct {
		backend llmhttp.Backend
		status  int
	}{
		"no method":       {drawing(&llm.Usage{PromptTokens: 1, CompletionTokens: 2}), 200},
		"unsupported":     {failing(errors.ErrUnsupported), 200},
		"a system error":  {failing(syscall.ENOTSUP), 500},
		"a nil stream":    {streamer{drawing(nil), func(*imageedit.Request) llm.ImageStream { return nil }}, 500},
		"behind a filter": {wrapper{drawing(nil), failing(assert.AnError)}, 200},
		"in a wrapper":    {wrapper{nil, failing(assert.AnError)}, 500},
		"no editor":       {onlyStreamer{}, 404},
	} {
		t.Run(name, func(t *testing.T) {
			b := test.backend
			if w, ok := b.(wrapper); ok && w.backend == nil {
				b = passing{w.next}
			}
			s := newServer(t, b, nil)
			w := s.Post(path, asJSON(image+`,"stream":true,"n":2,"response_format":"url"`))
			require.Equal(t, test.status, w.Code, w.Body)
			if test.status == 200 {
				assert.Equal(t, 2, strings.Count(w.Body.String(), "event: image_edit.completed\n"), w.Body)
				assert.Equal(t, 2, strings.Count(w.Body.String(), `"b64_json":"`+base64.StdEncoding.EncodeToString([]byte(pngData))+`"`))
				assert.EqualValues(t, 2, s.Records[0].Units.Images)
			}
			if name == "no method" {
				assert.Equal(t, 1, strings.Count(w.Body.String(), `"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}`))
			}
		})
	}
	for _, err := range imageedit.Stream(t.Context(), endpointtest.ChatOnly, new(imageedit.Request)) {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// A passing wrapper lets everything pass.
type passing struct{ llmhttp.Backend }

func (p passing) Unwrap(context.Context) llmhttp.Backend { return p.Backend }

// A wrapper has its own EditImages and lets the rest pass.
type wrapper struct {
	backend
	next llmhttp.Backend
}

func (w wrapper) Unwrap(context.Context) llmhttp.Backend { return w.next }

// An onlyStreamer streams edits, and has no EditImages.
type onlyStreamer struct{}

func (onlyStreamer) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (onlyStreamer) StreamImageEdits(context.Context, *imageedit.Request) llm.ImageStream {
	panic("called")
}
