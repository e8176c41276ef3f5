package llmhttptest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
)

// noSpeech is a stream that yields nothing.
func noSpeech(func(*sound, error) bool) {}

// failure returns a stream that fails with err.
func failure(err error) audio.SpeechStream {
	return func(yield func(*sound, error) bool) { yield(nil, err) }
}

// speechUnless returns a Speak that fails with err if fails returns true.
func speechUnless(err error, fails func(req *speechReq) bool) func(ctx context.Context, req *speechReq) audio.SpeechStream {
	return func(ctx context.Context, req *speechReq) audio.SpeechStream {
		if fails(req) {
			return failure(err)
		}
		return spell(ctx, req)
	}
}

// A Speaker may have one format that is not the default.
func TestBackend_SpeechFormat(t *testing.T) {
	wavOnly := speaking(speechUnless(llm.Errorf(400, "", "Only WAV."), func(req *speechReq) bool { return req.ResponseFormat != "wav" }))
	for format, passes := range map[string]bool{"wav": true, "": false, "mp3": false} {
		for name, check := range map[string]func(testing.TB, backendTest){"Speech": checkSpeech, "SpeechBreak": checkSpeechBreak} {
			if name == "Speech" || passes {
				run := func(t testing.TB, newB func(testing.TB) backendTest) { check(t, newB(t)) }
				failures := failuresOf(t, run, func(t testing.TB) backendTest {
					b := wavOnly(t)
					b.opts.SpeechFormat = format
					return b
				})
				assert.Equal(t, passes, len(failures) == 0, "%s in %q: %q", name, format, failures)
			}
		}
	}
}

var speechMutants = []mutant[backendTest]{
	{"Speak is not implemented", "Speech", chatOnly},
	{"the stream is nil", "Speech", speaking(func(context.Context, *speechReq) audio.SpeechStream { return nil })},
	{"the stream is empty", "Speech", speaking(func(context.Context, *speechReq) audio.SpeechStream { return noSpeech })},
	{"there is no audio", "Speech", editingSpeech(func(_ int, c *sound) { c.Audio = nil })},
	{"there is no audio in one format", "Speech", speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		if req.ResponseFormat == "pcm" {
			return noSpeech
		}
		return spell(ctx, req)
	})},
	{"every call fails", "Speech", speaking(speechUnless(llm.Errorf(429, "busy", "Busy."), func(*speechReq) bool { return true }))},
	{"an unknown voice is a server error", "Speech", speaking(speechUnless(errNotImplemented, func(req *speechReq) bool { return req.Voice.Name != "alloy" }))},
	{"a format is a server error", "Speech", speaking(speechUnless(errNotImplemented, func(req *speechReq) bool { return req.ResponseFormat == "opus" }))},
	{"Duration is that of the chunk", "Speech", editingSpeech(func(i int, c *sound) { c.Duration = time.Duration(10-i) * time.Millisecond })},
	{"Duration is negative", "Speech", editingSpeech(func(_ int, c *sound) { c.Duration = -1 })},
	{"the usage is negative", "Speech", editingSpeech(func(_ int, c *sound) { c.Usage = &llm.Usage{PromptTokens: -1} })},
	{"the stream goes on after an error", "Speech", speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		return func(yield func(*sound, error) bool) {
			yield(nil, llm.Errorf(400, "", "No."))
			yield(nil, llm.Errorf(400, "", "No."))
		}
	})},
	{"concurrent calls are refused", "Speech", backendFixture(func(e *echo) {
		var mu sync.Mutex
		e.speak = func(ctx context.Context, req *speechReq) audio.SpeechStream {
			return func(yield func(*sound, error) bool) {
				if !mu.TryLock() {
					yield(nil, llm.Errorf(429, "busy", "Busy."))
					return
				}
				defer mu.Unlock()
				time.Sleep(time.Microsecond)
				spell(ctx, req)(yield)
			}
		}
	})},

	{"any model is accepted", "SpeechUnknownModel", speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		req.Model = "speak"
		return spell(ctx, req)
	})},
	{"an unknown model is a server error", "SpeechUnknownModel", speaking(speechUnless(errors.New("no such model"), func(req *speechReq) bool { return req.Model != "speak" }))},

	{"the result of yield is ignored", "SpeechBreak", speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		return func(yield func(*sound, error) bool) {
			spell(ctx, req)(func(c *sound, err error) bool { yield(c, err); return true })
		}
	})},
	{"the context is ignored", "SpeechCancel", speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		return func(yield func(*sound, error) bool) {
			for yield(&sound{Audio: []byte("a")}, nil) && req.Model == "speak" {
				if len(req.Input) < 1000 {
					return
				}
			}
		}
	})},
	{"the context is ignored while nothing is yielded", "SpeechCancel", speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		return func(yield func(*sound, error) bool) {
			if len(req.Input) > 1000 {
				time.Sleep(2 * time.Minute)
			}
			spell(ctx, req)(yield)
		}
	})},
}
