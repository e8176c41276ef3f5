package route_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// A hearer is a Backend that transcribes by a function, which gets the content of the file.
type hearer struct {
	*multimodal
	hear func(r *audio.TranscriptionRequest, content string, yield func(*audio.TranscriptionChunk, error) bool)
}

func (b *hearer) Transcribe(_ context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		content, _ := io.ReadAll(r.File.Open())
		b.hear(r, string(content), yield)
	}
}

// Another target reads the file from its start, as long as no text was passed on.
func TestTranscribe_Fallback(t *testing.T) {
	down := &llm.Error{Status: 503, Message: "Down."}
	for name, test := range map[string]struct {
		first func(yield func(*audio.TranscriptionChunk, error) bool)
		want  string // empty if the request fails
	}{
		"before a chunk": {func(yield func(*audio.TranscriptionChunk, error) bool) { yield(nil, down) }, "content of second"},
		"after a chunk without text": {func(yield func(*audio.TranscriptionChunk, error) bool) {
			_ = yield(&audio.TranscriptionChunk{Language: "x"}, nil) && yield(nil, down)
		}, "content of second"},
		"after text": {func(yield func(*audio.TranscriptionChunk, error) bool) {
			_ = yield(&audio.TranscriptionChunk{Text: "a"}, nil) && yield(nil, down)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			first := &hearer{newMultimodal("1", nil), func(r *audio.TranscriptionRequest, _ string, yield func(*audio.TranscriptionChunk, error) bool) {
				r.File.Name, r.Extra["x"][0] = "changed", "changed"
				test.first(yield)
			}}
			second := &hearer{newMultimodal("2", nil), func(r *audio.TranscriptionRequest, content string, yield func(*audio.TranscriptionChunk, error) bool) {
				assert.Equal(t, "a.mp3", r.File.Name)
				assert.Equal(t, "b", r.Extra["x"][0])
				assert.Equal(t, "second", r.Model)
				yield(&audio.TranscriptionChunk{Text: content + " of " + r.Model}, nil)
			}}
			r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.InOrder, Targets: []route.Target{
				{Name: "chats", Backend: newFake(say("a"))}, {Name: "first", Backend: first, Model: "first"}, {Name: "second", Backend: second, Model: "second"},
			}})
			req := &audio.TranscriptionRequest{Model: "m", Extra: map[string][]string{"x": {"b"}},
				File: &llm.File{Name: "a.mp3", Size: 7, Content: bytes.NewReader([]byte("content"))}}
			got, err := audio.CollectTranscription(r.Transcribe(t.Context(), req))
			if test.want == "" {
				require.ErrorIs(t, err, down)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got.Text)
		})
	}
	_, err := audio.CollectTranscription(newRouter(t, nil, route.Route{Model: "m", Targets: targets(newFake(say("a")))}).Transcribe(t.Context(), &audio.TranscriptionRequest{Model: "m"}))
	require.Error(t, err, "no target transcribes")
}
