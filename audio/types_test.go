package audio_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/codectest"
)

var (
	_ = codectest.MakesConsistent(func(v *audio.SpeechVoice) { v.Name = "" })
	_ = codectest.MakesConsistent(func(c *audio.TranscriptionChunk) { c.Usage = &audio.TranscriptionUsage{Seconds: 8.5} })
)

var jsonSuite = codectest.Suite{
	Types: map[string]func() any{
		"SpeechRequest": func() any { return new(audio.SpeechRequest) },
		"SpeechVoice":   func() any { return new(audio.SpeechVoice) },
		"Transcription": func() any { return new(audio.TranscriptionChunk) },
		"Segment":       func() any { return new(audio.TranscriptionSegment) },
		"Word":          func() any { return new(audio.TranscriptionWord) },
	},
	Documents: []codectest.Document{
		{"SpeechRequest", `{"model":"m","input":"i","voice":"alloy","instructions":"s","response_format":"pcm","speed":0.5,"stream_format":"sse","language":"de"}`},
		{"SpeechVoice", `"alloy"`}, {"SpeechVoice", `{"id":"voice_1","x":1}`},
	},
}

func TestJSON(t *testing.T) { jsonSuite.Test(t) }

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 20)
}

func FuzzSpeechRequest(f *testing.F) {
	for _, d := range jsonSuite.Documents {
		f.Add([]byte(d.JSON))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, encoded, ok := codectest.RoundTrip[audio.SpeechRequest](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			codectest.SameValue(t, r, encoded)
		}
	})
}

// What a Backend decodes leniently can be encoded.
func FuzzTranscriptionChunk(f *testing.F) {
	f.Add([]byte(`{"task":"transcribe","language":"english","duration":"8.5","text":"Hi","segments":[{"id":0,"start":0,"end":1.5,"tokens":[7],"avg_logprob":null}],"words":[{"word":"Hi","start":0,"end":1}],"usage":{"type":"tokens","input_tokens":3},"logprobs":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) { codectest.RoundTripReply[audio.TranscriptionChunk](t, data) })
}
