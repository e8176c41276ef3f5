// Checks of speech.

package llmhttptest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var speechOperation = operation{
	model: func(o *BackendOptions) string { return o.SpeechModel },
	checks: []check[backendTest]{
		{"Speech", checkSpeech},
		{"SpeechUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.SpeechModel, func(model string) error {
				req := b.speechRequest()
				req.Model = model
				return b.speak(t.Context(), t, req, always).err
			})
		}},
		{"SpeechBreak", checkSpeechBreak},
		{"SpeechCancel", func(t testing.TB, b backendTest) {
			const limit = 1000 // more chunks than a Backend buffers
			for n := range 2 {
				ctx, cancel := context.WithCancel(t.Context())
				if n == 0 {
					cancel()
				}
				req := b.speechRequest()
				req.Input = strings.Repeat(req.Input+" ", 50)
				r := b.speak(ctx, t, req, func(r spokenReply) bool {
					cancel()
					return r.chunks <= limit
				})
				cancel()
				if r.chunks > limit {
					t.Errorf("the stream yielded %d chunks after its context was cancelled, want it to end", limit)
				}
			}
		}},
	},
	guards: []check[guard]{
		{"Speak", func(t testing.TB, g guard) {
			guardStream(t, g, audio.Speaker.Speak, &audio.SpeechRequest{Model: "m", Input: g.text, Voice: audio.SpeechVoice{Name: "alloy"}})
		}},
	},
}

// speechRequest returns a plain request for speech.
func (b *backendTest) speechRequest() *audio.SpeechRequest {
	return &audio.SpeechRequest{
		Model: b.opts.SpeechModel, Input: "The brown fox jumps over the lazy dog. The dog yawns and turns over.",
		Voice: audio.SpeechVoice{Name: "alloy"}, ResponseFormat: cmp.Or(b.opts.SpeechFormat, "mp3"), StreamFormat: "audio",
	}
}

// A spokenReply is what a Backend has yielded for a request for speech.
type spokenReply struct {
	chunks int
	bytes  int
	err    error
}

// speak iterates over the reply to req as long as more returns true, and reports faults of the
// stream. Its error is that of the stream, or says that the stream did not end in time.
func (b *backendTest) speak(ctx context.Context, t testing.TB, req *audio.SpeechRequest, more func(r spokenReply) bool) (r spokenReply) {
	t.Helper()
	failed := b.call(ctx, func(ctx context.Context) {
		stream := ability.Stream(audio.Speaker.Speak)(ctx, b.Backend, req)
		if stream == nil {
			panic("Speak returned a nil stream, want one that yields an error")
		}
		ended, duration := "", time.Duration(0)
		stream(func(c *audio.SpeechChunk, err error) bool {
			if ended != "" {
				t.Errorf("the stream yielded after %s, want it to return", ended)
				return false
			}
			if err != nil {
				r.err, ended = err, "an error"
				return false
			}
			r.chunks++
			if c != nil {
				r.bytes += len(c.Audio)
				wantConsistentUsage(t, "a chunk of speech", c.Usage)
				if c.Duration < 0 || c.Duration > 0 && c.Duration < duration {
					t.Errorf("a chunk has the Duration %v after %v, want that of all audio so far", c.Duration, duration)
				}
				duration = max(duration, c.Duration)
			}
			if !more(r) {
				ended = "yield had returned false"
			}
			return ended == ""
		})
	})
	switch {
	case failed != nil:
		t.Fatalf("Speak: %v", failed)
	case errors.Is(r.err, errors.ErrUnsupported):
		t.Fatalf("BackendOptions have a model for speech, but Speak yielded the error %v, want audio", r.err)
	}
	return r
}

// always is a condition that lasts.
func always(spokenReply) bool { return true }

func checkSpeech(t testing.TB, b backendTest) {
	if r := b.speak(t.Context(), t, b.speechRequest(), always); r.err != nil || r.bytes == 0 {
		t.Fatalf("a plain request for speech got %d bytes of audio and the error %v, want audio", r.bytes, r.err)
	}
	for _, change := range []func(*audio.SpeechRequest){
		func(r *audio.SpeechRequest) { r.ResponseFormat = "mp3" },
		func(r *audio.SpeechRequest) { r.ResponseFormat = "wav" },
		func(r *audio.SpeechRequest) { r.ResponseFormat = "pcm" },
		func(r *audio.SpeechRequest) { r.ResponseFormat = "opus" },
		func(r *audio.SpeechRequest) { r.StreamFormat = "sse" },
		func(r *audio.SpeechRequest) { r.Voice.Name = unique("no-such-voice") },
		func(r *audio.SpeechRequest) { r.Voice = audio.SpeechVoice{ID: unique("voice_")} },
		func(r *audio.SpeechRequest) { r.Speed, r.Instructions = new(0.25), "Whisper." },
		func(r *audio.SpeechRequest) { r.Input = "\U0001f642 \"quoted\"\n\x00" },
		func(r *audio.SpeechRequest) { r.Input = " " },
		func(r *audio.SpeechRequest) { r.Extra = llm.Extra{"x_unknown": json.RawMessage(`{"a":1}`)} },
	} {
		req := b.speechRequest()
		change(req)
		if r := b.speak(t.Context(), t, req, always); r.err != nil {
			wantClientError(t, r.err)
		} else if r.bytes == 0 {
			t.Errorf("a request for speech got neither audio nor an error, want one of them")
		}
	}
	const calls = 4
	runConcurrently(t, calls, func(int) {
		if r := b.speak(t.Context(), t, b.speechRequest(), always); r.err != nil || r.bytes == 0 {
			t.Errorf("one of %d concurrent requests for speech got %d bytes and the error %v, want audio", calls, r.bytes, r.err)
		}
	})
}

func checkSpeechBreak(t testing.TB, b backendTest) {
	for n := range 2 {
		b.speak(t.Context(), t, b.speechRequest(), func(r spokenReply) bool { return r.chunks <= n })
	}
}
