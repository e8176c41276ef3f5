// Transcriptions.

package simulator

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// recordings are the extensions of the files that the model reads.
var recordings = []string{"flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "ogg", "wav", "webm"}

const (
	bytesPerSecond  = 16_000 // of every recording, whatever it is
	tokensPerSecond = 10     // of a recording
	segmentWords    = 5
)

// Transcribe implements [audio.Transcriber].
func (b *Backend) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		s := &modelreply.Sender[*audio.TranscriptionChunk]{Ctx: ctx, Delay: b.Delay, Yield: yield}
		if req.Model != ModelTranscribe {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		if ext := req.File.Extension(); !slices.Contains(recordings, ext) {
			e := llm.Errorf(
				http.StatusBadRequest,
				"invalid_value",
				"Invalid file format. Supported formats: %s.",
				strings.Join(recordings, ", "),
			)
			e.Param = "file"
			yield(nil, e)
			return
		}
		sendTranscript(s, req)
	}
}

// sendTranscript sends a chunk for each word, and one with what belongs to the whole recording.
func sendTranscript(s *modelreply.Sender[*audio.TranscriptionChunk], req *audio.TranscriptionRequest) {
	text := fmt.Sprintf("This is what somebody says in the recording %s of %d bytes.", req.File.Name, req.File.Size)
	if req.Translate {
		text = "In English: " + text
	}
	words := modelreply.Words(text, 0)
	seconds := float64(req.File.Size) / bytesPerSecond
	last := &audio.TranscriptionChunk{Language: req.Language, Duration: seconds, Segments: []audio.TranscriptionSegment{}}
	if last.Language == "" {
		last.Language = "english"
	}
	at := func(word int) float64 { return seconds * float64(word) / float64(len(words)) }
	for i, w := range words {
		if !s.Send(&audio.TranscriptionChunk{Text: w}) {
			return
		}
		last.Words = append(last.Words, audio.TranscriptionWord{Word: strings.TrimSpace(w), Start: at(i), End: at(i + 1)})
		if i%segmentWords == 0 {
			last.Segments = append(last.Segments, audio.TranscriptionSegment{Start: at(i), Speaker: "A"})
		}
		segment := &last.Segments[len(last.Segments)-1]
		segment.Text += w
		segment.End = at(i + 1)
	}
	heard, prompt := int(seconds*tokensPerSecond), CountTokens(req.Model, req.Prompt)
	usage := &llm.Usage{PromptTokens: heard + prompt, CompletionTokens: CountTokens(req.Model, text)}
	usage.PromptTokensDetails.AudioTokens = heard
	usage.TotalTokens = usage.PromptTokens + usage.CompletionTokens
	last.Usage = &audio.TranscriptionUsage{Tokens: usage}
	s.Send(last)
}
