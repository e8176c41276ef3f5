// Where the texts of transcriptions are.

package textfilter

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/invalid"
)

// What is spoken is not rewritten.
var transcriptionTexts = textsOf(func(w *rewriter, r *audio.TranscriptionRequest) {
	w.text(Content, &r.Prompt)
	if r.File != nil {
		w.text(Other, &r.File.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		w.list(Other, r.Extra[name])
	}
})

// transcription rewrites the texts of a reply. The segments, the words and the log probabilities
// have the text in pieces, in which a filter does not find what is divided between them. So all of
// them are dropped if the filter changes the text, or that of the segments or words, which may be
// another one.
func (w *rewriter) transcription(c *audio.TranscriptionChunk) {
	var segments, words strings.Builder
	for i := range c.Segments {
		s := &c.Segments[i]
		segments.WriteString(s.Text)
		w.text(Other, &s.Speaker)
		w.extra(s.Extra)
	}
	for i := range c.Words {
		words.WriteString(c.Words[i].Word + " ")
		w.extra(c.Words[i].Extra)
	}
	text := c.Text
	w.text(Content, &c.Text)
	changed := c.Text != text
	for _, pieces := range []string{segments.String(), words.String()} {
		if sameWords(pieces, text) {
			continue // the filter has seen it
		}
		filtered := pieces
		w.text(Content, &filtered)
		changed = changed || filtered != pieces
	}
	if changed {
		c.Segments, c.Words = nil, nil
		delete(c.Extra, "logprobs")
	}
	w.extra(c.Extra)
}

// sameWords reports whether a and b differ only in white space between words and around them.
func sameWords(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// Transcribe implements [audio.Transcriber]. The text is filtered when it is complete.
func (b *backend) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return filterStream(ctx, b, transcriptionTexts, ability.Stream(audio.Transcriber.Transcribe), req, forwardTranscription)
}

// forwardTranscription yields a stream as one chunk. For each chunk before, it yields one without
// text, without which the reader would take the stream for silent.
func forwardTranscription(f *Filter, stream audio.TranscriptionStream, yield func(*audio.TranscriptionChunk, error) bool) {
	size, stopped := 0, false
	c, err := audio.CollectTranscription(func(collect func(*audio.TranscriptionChunk, error) bool) {
		for c, err := range stream {
			if c != nil && err == nil {
				size += c.Size()
			}
			if size > maxHeld {
				c, err = nil, invalid.ReplyTooLarge(maxHeld)
			}
			if !collect(c, err) {
				return
			}
			if stopped = c != nil && !yield(&audio.TranscriptionChunk{Usage: c.Usage, Duration: c.Duration}, nil); stopped {
				return
			}
		}
	})
	switch {
	case stopped:
		return
	case err != nil:
		yield(nil, err)
		return
	}
	w := f.rewriter()
	w.transcription(c)
	yield(c, errFiltered(w.err))
}
