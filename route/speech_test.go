package route_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

// A speaker is a Backend that speaks.
type speaker struct {
	llmhttp.BackendFunc
	speak func(ctx context.Context, r *audio.SpeechRequest, yield func(*audio.SpeechChunk, error) bool)
}

func (b *speaker) Speak(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) { b.speak(ctx, r, yield) }
}

// speaking returns a Backend that yields pieces of audio, and then err unless that is nil. It uses
// the memory of a piece again.
func speaking(err error, pieces ...string) *speaker {
	return &speaker{speak: func(_ context.Context, _ *audio.SpeechRequest, yield func(*audio.SpeechChunk, error) bool) {
		var piece []byte
		for _, p := range pieces {
			piece = append(piece[:0], p...)
			if !yield(&audio.SpeechChunk{Audio: piece}, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}}
}

// hear returns the audio of a reply, and its error.
func hear(s audio.SpeechStream) (heard string, err error) {
	for c, err := range s {
		if err != nil {
			return heard, err
		}
		heard += string(c.Audio)
	}
	return heard, nil
}

// Another target is tried until the first audio, and not later.
func TestSpeech_Fallback(t *testing.T) {
	for name, test := range map[string]struct {
		first llmhttp.Backend
		want  string
		fails bool
	}{
		"answers":             {speaking(nil, "a", "", "a"), "aa", false},
		"fails":               {speaking(errDial), "b", false},
		"yields no audio":     {speaking(errDial, "", ""), "b", false},
		"yields nothing":      {speaking(nil), "b", false},
		"fails in mid-stream": {speaking(errDial, "a"), "a", true},
		"429":                 {speaking(llm.Errorf(429, "", "x")), "b", false},
		"400":                 {speaking(llm.Errorf(400, "", "x")), "", true},
		"serves chats only":   {newFake(say("a")), "b", false},
		"unknown model":       {speaking(llm.ModelNotFound("m")), "b", false},
		"hangs": {&speaker{speak: func(ctx context.Context, _ *audio.SpeechRequest, _ func(*audio.SpeechChunk, error) bool) {
			<-ctx.Done()
		}}, "b", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRouter(t, &route.Options{TryTimeout: time.Second, Rounds: 1},
					route.Route{Model: "m", Strategy: route.InOrder, Targets: targets(test.first, speaking(nil, "b"))})
				got, err := hear(r.Speak(t.Context(), &audio.SpeechRequest{Model: "m"}))
				assert.Equal(t, test.want, got)
				assert.Equal(t, test.fails, err != nil, "%v", err)
			})
		})
	}
}

// A target gets a copy of the request with its name of the model.
func TestSpeech_Request(t *testing.T) {
	var got *audio.SpeechRequest
	b := &speaker{speak: func(_ context.Context, r *audio.SpeechRequest, yield func(*audio.SpeechChunk, error) bool) {
		got = r
		*r.Speed = 3
		yield(&audio.SpeechChunk{Audio: []byte("a")}, nil)
	}}
	r := newRouter(t, nil, route.Route{Model: "m", Targets: singleTarget(b, "tts-1")})
	req := &audio.SpeechRequest{Model: "m", Input: "x", Voice: audio.SpeechVoice{Name: "alloy"}, Speed: new(2.0)}
	_, err := hear(r.Speak(t.Context(), req))
	require.NoError(t, err)
	assert.Equal(t, "tts-1", got.Model)
	assert.Equal(t, req.Voice, got.Voice)
	assert.Equal(t, 2.0, *req.Speed)
	assert.Equal(t, "m", req.Model)
	_, err = hear(newRouter(t, nil, route.Route{Model: "m", Targets: targets(newFake(say("a")))}).Speak(t.Context(), req))
	assert.ErrorContains(t, err, "speech")
}
