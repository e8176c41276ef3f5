// Checks of transcriptions.

package llmhttptest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/llm"
)

var transcriptionsOperation = operation{
	model: func(o *BackendOptions) string { return o.TranscriptionModel },
	checks: []check[backendTest]{
		{"Transcriptions", checkTranscriptions},
		{"TranscriptionUnknownModel", func(t testing.TB, b backendTest) {
			b.wantUnknownModels(t, b.opts.TranscriptionModel, func(model string) error {
				req := b.transcriptionRequest()
				req.Model = model
				return b.transcribe(t.Context(), t, req, untilEnd).err
			})
		}},
		{"TranscriptionBreak", func(t testing.TB, b backendTest) {
			for n := range 2 {
				b.transcribe(t.Context(), t, b.transcriptionRequest(), func(r heardReply) bool { return r.chunks <= n })
			}
		}},
		{"TranscriptionCancel", func(t testing.TB, b backendTest) {
			const limit = 1000 // more chunks than a Backend buffers
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := b.transcribe(ctx, t, b.transcriptionRequest(), func(r heardReply) bool {
				cancel()
				return r.chunks <= limit
			})
			if r.chunks > limit {
				t.Errorf("the stream yielded %d chunks after its context was cancelled, want it to end", limit)
			}
		}},
	},
	guards: []check[guard]{
		{"Transcribe", func(t testing.TB, g guard) {
			guardStream(t, g, audio.Transcriber.Transcribe, &audio.TranscriptionRequest{Model: "m", Prompt: g.text, File: emptyFile()})
		}},
	},
}

// recording returns the recording of BackendOptions, or a second of silence.
func (o *BackendOptions) recording() *llm.File {
	if o.Recording != nil {
		return new(*o.Recording)
	}
	silence := silentWAV()
	return &llm.File{Name: "silence.wav", ContentType: "audio/wav", Size: int64(len(silence)), Content: bytes.NewReader(silence)}
}

// silentWAV returns a second of silence: 16 kHz, 16 bits, mono.
func silentWAV() []byte {
	const rate = 16_000
	b := append([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, 36+2*rate)...)
	b = append(b, "WAVEfmt "...)
	for _, n := range []uint32{16, 1 | 1<<16, rate, 2 * rate, 2 | 16<<16} { // size, PCM and one channel, rates, block and bits
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	b = binary.LittleEndian.AppendUint32(append(b, "data"...), 2*rate)
	return append(b, make([]byte, 2*rate)...)
}

// transcriptionRequest returns a plain request for a transcription.
func (b *backendTest) transcriptionRequest() *audio.TranscriptionRequest {
	return &audio.TranscriptionRequest{
		Model:          b.opts.TranscriptionModel,
		File:           b.opts.recording(),
		ResponseFormat: audio.TranscriptionJSON,
	}
}

// A heardReply is what a Backend has yielded for a request for a transcription.
type heardReply struct {
	chunks int
	err    error
}

// transcribe iterates over the reply to req as long as more returns true, and reports faults of the
// stream.
func (b *backendTest) transcribe(
	ctx context.Context,
	t testing.TB,
	req *audio.TranscriptionRequest,
	more func(r heardReply) bool,
) (r heardReply) {
	t.Helper()
	failed := b.call(ctx, func(ctx context.Context) {
		stream := ability.Stream(audio.Transcriber.Transcribe)(ctx, b.Backend, req)
		if stream == nil {
			panic("Transcribe returned a nil stream, want one that yields an error")
		}
		ended := ""
		stream(func(c *audio.TranscriptionChunk, err error) bool {
			if ended != "" {
				t.Errorf("the stream yielded after %s, want it to return", ended)
				return false
			}
			if err != nil {
				r.err, ended = err, "an error"
				return false
			}
			if r.chunks++; c != nil {
				wantTranscriptionChunk(t, c)
			}
			if !more(r) {
				ended = "yield had returned false"
			}
			return ended == ""
		})
	})
	switch {
	case failed != nil:
		t.Fatalf("Transcribe: %v", failed)
	case errors.Is(r.err, errors.ErrUnsupported):
		t.Fatalf("BackendOptions have a model for transcriptions, but Transcribe yielded the error %v, want a text", r.err)
	case r.err == nil && r.chunks == 0:
		t.Fatal("Transcribe yielded neither a chunk nor an error, want one of them")
	}
	return r
}

// wantTranscriptionChunk reports faults of a chunk.
func wantTranscriptionChunk(t testing.TB, c *audio.TranscriptionChunk) {
	t.Helper()
	wantJSON(t, "a chunk of a transcription", c, c.Extra)
	if !isTime(c.Duration) {
		t.Errorf("the Duration of a chunk is %v, want seconds", c.Duration)
	}
	for i, s := range c.Segments {
		if !isTime(s.Start) || !isTime(s.End) || s.End < s.Start {
			t.Errorf("segment %d is from %v to %v, want seconds", i, s.Start, s.End)
		}
	}
	for i, w := range c.Words {
		if !isTime(w.Start) || !isTime(w.End) || w.End < w.Start {
			t.Errorf("word %d is from %v to %v, want seconds", i, w.Start, w.End)
		}
	}
	if u := c.Usage; u != nil {
		wantConsistentUsage(t, "a chunk of a transcription", u.Tokens)
		if !isTime(u.Seconds) {
			t.Errorf("the usage of a chunk is %v seconds, want none or more", u.Seconds)
		}
	}
}

func isTime(seconds float64) bool { return seconds >= 0 && !math.IsInf(seconds, 1) }

// untilEnd is a condition that lasts.
func untilEnd(heardReply) bool { return true }

func checkTranscriptions(t testing.TB, b backendTest) {
	if r := b.transcribe(t.Context(), t, b.transcriptionRequest(), untilEnd); r.err != nil {
		t.Fatalf("a plain request for a transcription got the error %v, want a text", r.err)
	}
	for _, change := range []func(*audio.TranscriptionRequest){
		func(r *audio.TranscriptionRequest) { r.Stream = true },
		func(r *audio.TranscriptionRequest) { r.Translate = true },
		func(r *audio.TranscriptionRequest) { r.ResponseFormat = audio.TranscriptionText },
		func(r *audio.TranscriptionRequest) { r.ResponseFormat = audio.TranscriptionSRT },
		func(r *audio.TranscriptionRequest) {
			r.ResponseFormat, r.TimestampGranularities = audio.TranscriptionVerbose, []string{"word", "segment"}
		},
		func(r *audio.TranscriptionRequest) {
			r.ResponseFormat, r.Stream = audio.TranscriptionDiarized, true
		},
		func(r *audio.TranscriptionRequest) {
			r.Language, r.Prompt, r.Temperature = "xx", "Zoë \"quoted\"\n", new(1.0)
		},
		func(r *audio.TranscriptionRequest) { r.Include = []string{"logprobs"} },
		func(r *audio.TranscriptionRequest) { r.Extra = map[string][]string{"x_unknown[]": {"a", "b"}} },
		func(r *audio.TranscriptionRequest) { r.File.Name, r.File.ContentType = "", "" },
		func(r *audio.TranscriptionRequest) {
			r.File = &llm.File{Name: "no recording.txt", ContentType: "text/plain", Size: 3, Content: bytes.NewReader([]byte("abc"))}
		},
	} {
		req := b.transcriptionRequest()
		change(req)
		if r := b.transcribe(t.Context(), t, req, untilEnd); r.err != nil {
			wantClientError(t, r.err)
		}
	}
	const calls = 4
	file := b.opts.recording() // all read the same
	runConcurrently(t, calls, func(int) {
		req := b.transcriptionRequest()
		req.File = new(*file)
		if r := b.transcribe(t.Context(), t, req, untilEnd); r.err != nil {
			t.Errorf("one of %d concurrent requests for a transcription got the error %v, want a text", calls, r.err)
		}
	})
}
