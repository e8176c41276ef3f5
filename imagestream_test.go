package llmhttp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// imageEvent returns an event with an image that is complete or not.
func imageEvent(kind, data, members string) string {
	return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"b64_json\":\"" + base64.StdEncoding.EncodeToString([]byte(data)) + "\"," + members + "}\n\n"
}

// What a client gets of a stream of two images: previews, numbered for each image, and the usage with
// the last image.
func TestImageStreams_Events(t *testing.T) {
	chunks := []*llm.ImageChunk{
		{},
		{Image: &llm.Image{Data: []byte("p1")}, Partial: true},
		{Image: &llm.Image{URL: "data:image/png;base64,cDI=", RevisedPrompt: "r"}, Partial: true},
		{Image: &llm.Image{Data: []byte("a"), Extra: llm.Extra{"size": json.RawMessage(`"2x3"`), "created_at": json.RawMessage(`7`), "usage": json.RawMessage(`1`), "x": json.RawMessage(`{"y":1}`)}}},
		{Image: &llm.Image{Data: []byte("p3")}, Partial: true},
		{Image: &llm.Image{Data: []byte("b")}},
		{Usage: &llm.Usage{PromptTokens: 5, CompletionTokens: 7}},
	}
	const usage = `,"usage":{"input_tokens":5,"output_tokens":7,"total_tokens":12}`
	synctest.Test(t, func(t *testing.T) {
		var got *llm.ImageRequest
		s := startPipeServer(t, config{backend: &stubBackend{draw: func(_ context.Context, r *llm.ImageRequest) llm.ImageStream {
			got = r
			return drawing(chunks...)
		}}})
		r := s.do("POST", imagesPath, `{"model":"m","prompt":"p","n":2,"stream":true,"partial_images":2,"quality":"low"}`)
		require.NoError(t, r.err)
		assert.Equal(t, 200, r.StatusCode)
		assert.Equal(t, "text/event-stream; charset=utf-8", r.Header.Get("Content-Type"))
		members := func(index string) string {
			return `"background":"auto","created_at":946684800,"output_format":"png",` + index + `"quality":"low","size":"1024x1024"`
		}
		const partial, completed = "image_generation.partial_image", "image_generation.completed"
		own := strings.NewReplacer("946684800", "7", `"size":"1024x1024"`, `"size":"2x3"`).Replace(members("")) + `,"x":{"y":1}`
		assert.Equal(t, imageEvent(partial, "p1", members(`"partial_image_index":0,`))+
			imageEvent(partial, "p2", members(`"partial_image_index":1,`))+
			imageEvent(completed, "a", own)+
			imageEvent(partial, "p3", members(`"partial_image_index":0,`))+
			imageEvent(completed, "b", members("")+usage), r.body)
		assert.True(t, got.Stream)
		assert.Equal(t, 2, *got.PartialImages)
		record := s.record()
		assert.Equal(t, llmhttp.Units{PromptTokens: 5, CompletionTokens: 7, Images: 2}, record.Units)
		assert.True(t, s.summary().Streamed)
		assert.Equal(t, 7, s.summary().Chunks)
	})
}

// A Backend without StreamImages answers with its complete images.
func TestImageStreams_WithoutStreamer(t *testing.T) {
	generator := struct {
		llmhttp.Backend
		llmhttp.ImageGenerator
	}{chatOnly, &stubBackend{usage: &llm.Usage{PromptTokens: 1, CompletionTokens: 2}}}
	s := startServer(t, config{backend: generator})
	r := s.do("POST", imagesPath, `{"model":"m","prompt":"p","n":2,"stream":true,"response_format":"url"}`)
	assert.Equal(t, 2, strings.Count(r.body, "event: image_generation.completed\n"), r.body)
	assert.Equal(t, 2, strings.Count(r.body, `"b64_json":"`+base64.StdEncoding.EncodeToString([]byte(pngData))+`"`))
	assert.Equal(t, 1, strings.Count(r.body, `"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}`))
	assert.EqualValues(t, 2, s.record().Units.Images)
}

// Mistakes are told before the stream begins.
func TestImageStreams_Mistakes(t *testing.T) {
	chunk := func(image llm.Image, partial bool) *llm.ImageChunk {
		return &llm.ImageChunk{Image: &image, Partial: partial}
	}
	for name, test := range map[string]struct {
		members string
		chunks  []*llm.ImageChunk
		status  int
		param   string
	}{
		"too many previews":  {`"partial_images":4`, nil, 400, "partial_images"},
		"negative previews":  {`"partial_images":-1`, nil, 400, "partial_images"},
		"not a boolean":      {`"stream":"yes"`, nil, 400, "stream"},
		"size":               {`"size":"2x2"`, []*llm.ImageChunk{chunk(llm.Image{Data: []byte("x")}, false)}, 400, "size"},
		"no chunk":           {``, nil, 500, ""},
		"no image":           {``, []*llm.ImageChunk{{}}, 500, ""},
		"an image elsewhere": {``, []*llm.ImageChunk{chunk(llm.Image{URL: "https://example.com/a.png"}, true)}, 500, ""},
		"an empty image":     {``, []*llm.ImageChunk{chunk(llm.Image{}, true)}, 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: &stubBackend{
				sizes: func(context.Context, string) ([]string, error) { return []string{"1024x1024"}, nil },
				draw:  func(context.Context, *llm.ImageRequest) llm.ImageStream { return drawing(test.chunks...) },
			}})
			body := `{"model":"m","prompt":"p","stream":true,` + test.members + `}`
			if strings.Contains(test.members, "stream") {
				body = `{"model":"m","prompt":"p",` + test.members + `}`
			}
			e := s.do("POST", imagesPath, strings.Replace(body, ",}", "}", 1)).checkError(t, test.status)
			assert.Equal(t, test.param, e.Param)
			s.waitForSummaries(1)
			for _, record := range s.usage.records() {
				if test.status == 400 {
					assert.Zero(t, record.Units)
				}
			}
		})
	}
	// Previews without an image are a reply that failed.
	s := startServer(t, config{backend: &stubBackend{draw: func(context.Context, *llm.ImageRequest) llm.ImageStream {
		return drawing(chunk(llm.Image{Data: []byte("p")}, true))
	}}})
	r := s.do("POST", imagesPath, `{"model":"m","prompt":"p","stream":true}`)
	require.Error(t, r.err, "the connection is cut")
	assert.Contains(t, r.body, `data: {"error":{"message":`)
	assert.NotContains(t, r.body, "completed")
	assert.Error(t, s.summary().Err)
}
