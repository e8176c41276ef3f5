package textfilter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

const (
	chatPath           = "/v1/chat/completions"
	completionsPath    = "/v1/completions"
	embeddingsPath     = "/v1/embeddings"
	imagesPath         = "/v1/images/generations"
	moderationsPath    = "/v1/moderations"
	transcriptionsPath = "/v1/audio/transcriptions"
)

// Valid requests.
const (
	chatBody       = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello, how are you?"}]}`
	streamBody     = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello, how are you?"}],"stream":true}`
	embeddingBody  = `{"model":"demo-embed","input":"Hello, how are you?"}`
	imageBody      = `{"model":"demo-image","prompt":"a cat"}`
	moderationBody = `{"model":"demo-moderation","input":"Hello, how are you?"}`
)

// formatHandler returns a Handler for all formats.
func formatHandler(b llmhttp.Backend) *llmhttp.Handler { return handlerWith(b, llmhttp.Options{}) }

// handlerWith returns a Handler with options for all formats.
func handlerWith(b llmhttp.Backend, opts llmhttp.Options) *llmhttp.Handler {
	opts.Protocols = []llmhttp.Protocol{messages.New(nil), responses.New(nil)}
	opts.Routes = all.Routes(nil)
	return llmhttp.NewHandler(b, llmhttp.AllowAll("acme"), &opts)
}

// serveFormat posts a body to h and returns the reply.
func serveFormat(h http.Handler, path, body string) *httptest.ResponseRecorder {
	return serveAs(h, path, "application/json", body)
}

func serveAs(h http.Handler, path, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Anthropic-Version", "2023-06-01")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// serveRecording posts a form with a recording and the fields.
func serveRecording(t *testing.T, h http.Handler, fields map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "speech.mp3")
	require.NoError(t, err)
	fmt.Fprint(file, "RIFF")
	for name, value := range fields {
		require.NoError(t, form.WriteField(name, value))
	}
	require.NoError(t, form.Close())
	return serveAs(h, transcriptionsPath, form.FormDataContentType(), body.String())
}

// A usageLog keeps what is recorded.
type usageLog struct {
	llmhttp.UsageStore
	records []llmhttp.UsageRecord
}

func (u *usageLog) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	u.records = append(u.records, records...)
	return nil
}

// jsonStream returns a stream of chunks that are given as JSON.
func jsonStream(t *testing.T, lines ...string) llm.ChatStream {
	t.Helper()
	var chunks []*llm.ChatChunk
	for _, line := range lines {
		c := new(llm.ChatChunk)
		require.NoError(t, json.Unmarshal([]byte(line), c), "%s", line)
		chunks = append(chunks, c)
	}
	return streamOf(chunks...)
}

// chatting returns a Backend that answers a chat with the stream that newStream returns.
func chatting(newStream func() llm.ChatStream) llmhttp.BackendFunc {
	return func(context.Context, *llm.ChatRequest) llm.ChatStream { return newStream() }
}

// A completer is a Backend that completes prompts with the stream that stream returns.
type completer struct {
	llmhttp.BackendFunc
	stream func() llm.ChatStream
}

func (b *completer) Complete(context.Context, *completion.Request) llm.ChatStream {
	return b.stream()
}

// A transcriber is a Backend that answers each transcription with a stream.
type transcriber struct {
	llmhttp.BackendFunc
	stream audio.TranscriptionStream
}

func (b *transcriber) Transcribe(context.Context, *audio.TranscriptionRequest) audio.TranscriptionStream {
	return b.stream
}

// A drawer is a Backend that answers requests for images and edits with the stream that draw returns.
type drawer struct {
	llmhttp.BackendFunc
	draw func(req *llm.ImageRequest) llm.ImageStream
}

func (b *drawer) GenerateImages(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
	panic("there are only streams")
}

func (b *drawer) StreamImages(_ context.Context, req *llm.ImageRequest) llm.ImageStream {
	return b.draw(req)
}

func (b *drawer) EditImages(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
	panic("there are only streams")
}

func (b *drawer) StreamImageEdits(_ context.Context, req *imageedit.Request) llm.ImageStream {
	return b.draw(&req.ImageRequest)
}
