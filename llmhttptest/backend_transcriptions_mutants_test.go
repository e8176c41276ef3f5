package llmhttptest

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
)

// Short names for the signatures of mutants.
type (
	hearReq   = audio.TranscriptionRequest
	heard     = audio.TranscriptionChunk
	hearFunc  = func(ctx context.Context, req *hearReq) audio.TranscriptionStream
	heardFunc = func(*heard, error) bool
)

// hear yields a text of several chunks.
func hear(ctx context.Context, req *hearReq) audio.TranscriptionStream {
	return func(yield heardFunc) {
		switch {
		case req.Model != "hear":
			yield(nil, llm.ModelNotFound(req.Model))
			return
		case req.File.Extension() == "txt":
			yield(nil, llm.Errorf(400, "invalid_value", "No recording.").WithParam("file"))
			return
		}
		for _, text := range []string{"Some", "hums."} {
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}
			if !yield(&heard{Text: text}, nil) {
				return
			}
		}
		yield(&heard{Duration: 1, Segments: []audio.TranscriptionSegment{{End: 1, Text: "Somebody hums."}}, Words: []audio.TranscriptionWord{{End: 1, Word: "Somebody"}}}, nil)
	}
}

// hearing returns a constructor of a Backend with another Transcribe.
func hearing(f hearFunc) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.hear = f })
}

// editingHeard returns a constructor of a Backend that changes the last chunk.
func editingHeard(change func(c *heard)) func(testing.TB) backendTest {
	return hearing(func(ctx context.Context, req *hearReq) audio.TranscriptionStream {
		return func(yield heardFunc) {
			hear(ctx, req)(func(c *heard, err error) bool {
				if c != nil && c.Segments != nil {
					change(c)
				}
				return yield(c, err)
			})
		}
	})
}

// hearUnless returns a Transcribe that fails with err if fails returns true.
func hearUnless(err error, fails func(req *hearReq) bool) hearFunc {
	return func(ctx context.Context, req *hearReq) audio.TranscriptionStream {
		if fails(req) {
			return func(yield heardFunc) { yield(nil, err) }
		}
		return hear(ctx, req)
	}
}

var transcriptionMutants = []mutant[backendTest]{
	{"Transcribe is not implemented", "Transcriptions", chatOnly},
	{"the stream is nil", "Transcriptions", hearing(func(context.Context, *hearReq) audio.TranscriptionStream { return nil })},
	{"the stream is empty", "Transcriptions", hearing(func(context.Context, *hearReq) audio.TranscriptionStream { return func(heardFunc) {} })},
	{"every call fails", "Transcriptions", hearing(hearUnless(llm.Errorf(429, "busy", "Busy."), func(*hearReq) bool { return true }))},
	{"a format is a server error", "Transcriptions", hearing(hearUnless(errNotImplemented, func(req *hearReq) bool { return req.ResponseFormat == audio.TranscriptionSRT }))},
	{"a file that is not a recording is a server error", "Transcriptions", hearing(hearUnless(errNotImplemented, func(req *hearReq) bool { return req.File.Extension() == "txt" }))},
	{"a file without a name is a server error", "Transcriptions", hearing(hearUnless(errNotImplemented, func(req *hearReq) bool { return req.File.Name == "" }))},
	{"the Duration is negative", "Transcriptions", editingHeard(func(c *heard) { c.Duration = -1 })},
	{"a segment ends before it starts", "Transcriptions", editingHeard(func(c *heard) { c.Segments[0].Start = 2 })},
	{"a word has no time", "Transcriptions", editingHeard(func(c *heard) { c.Words[0].End = math.NaN() })},
	{"the usage is negative", "Transcriptions", editingHeard(func(c *heard) {
		c.Usage = &audio.TranscriptionUsage{Tokens: &llm.Usage{PromptTokens: -1}}
	})},
	{"the seconds of the usage are negative", "Transcriptions", editingHeard(func(c *heard) { c.Usage = &audio.TranscriptionUsage{Seconds: -1} })},
	{"the Extra of a chunk is invalid", "Transcriptions", editingHeard(func(c *heard) { c.Extra = invalid })},
	{"the stream goes on after an error", "Transcriptions", hearing(func(context.Context, *hearReq) audio.TranscriptionStream {
		return func(yield heardFunc) {
			yield(nil, llm.Errorf(400, "", "No."))
			yield(nil, llm.Errorf(400, "", "No."))
		}
	})},
	{"concurrent calls are refused", "Transcriptions", backendFixture(func(e *echo) {
		var mu sync.Mutex
		e.hear = func(ctx context.Context, req *hearReq) audio.TranscriptionStream {
			return func(yield heardFunc) {
				if !mu.TryLock() {
					yield(nil, llm.Errorf(429, "busy", "Busy."))
					return
				}
				defer mu.Unlock()
				time.Sleep(time.Microsecond)
				hear(ctx, req)(yield)
			}
		}
	})},

	{"any model is accepted", "TranscriptionUnknownModel", hearing(func(ctx context.Context, req *hearReq) audio.TranscriptionStream {
		req.Model = "hear"
		return hear(ctx, req)
	})},
	{"an unknown model is a server error", "TranscriptionUnknownModel", hearing(hearUnless(errors.New("no such model"), func(req *hearReq) bool { return req.Model != "hear" }))},

	{"the result of yield is ignored", "TranscriptionBreak", hearing(func(ctx context.Context, req *hearReq) audio.TranscriptionStream {
		return func(yield heardFunc) {
			hear(ctx, req)(func(c *heard, err error) bool { yield(c, err); return true })
		}
	})},
	{"the context is ignored", "TranscriptionCancel", hearing(func(context.Context, *hearReq) audio.TranscriptionStream {
		return func(yield heardFunc) {
			for yield(&heard{Text: "a"}, nil) {
			}
		}
	})},
}
