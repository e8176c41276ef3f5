package simulator_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

// speak returns the chunks of a reply.
func speak(t *testing.T, change func(r *audio.SpeechRequest)) (spoken []byte, chunks int, last audio.SpeechChunk) {
	t.Helper()
	req := &audio.SpeechRequest{Model: simulator.ModelSpeech, Input: "one two  three", Voice: audio.SpeechVoice{Name: "alloy"}}
	change(req)
	for c, err := range simulator.New().Speak(t.Context(), req) {
		require.NoError(t, err)
		spoken = append(spoken, c.Audio...)
		chunks++
		if c.Duration > 0 {
			last.Duration = c.Duration
		}
		last.Usage = c.Usage
	}
	return spoken, chunks, last
}

func TestSpeech(t *testing.T) {
	format := func(f string) func(r *audio.SpeechRequest) {
		return func(r *audio.SpeechRequest) { r.ResponseFormat = f }
	}
	pcm, chunks, last := speak(t, format("pcm"))
	assert.Len(t, pcm, 3*8*576*2)
	assert.Equal(t, 4, chunks)
	assert.Equal(t, 576*time.Millisecond, last.Duration)
	assert.Equal(t, &llm.Usage{PromptTokens: 3, CompletionTokens: 24}, last.Usage)

	wav, _, _ := speak(t, format("wav"))
	assert.Equal(t, "RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0]\x00\x00\x80\xbb\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xff", string(wav[:44]))
	assert.Equal(t, pcm, wav[44:])

	mp3, _, _ := speak(t, format(""))
	assert.Len(t, mp3, 24*192)
	assert.Equal(t, 24, bytes.Count(mp3, []byte{0xff, 0xf3, 0x84, 0xc4}))

	again, _, _ := speak(t, format("pcm"))
	assert.Equal(t, pcm, again)
	for name, change := range map[string]func(r *audio.SpeechRequest){
		"another voice": func(r *audio.SpeechRequest) { r.Voice.Name = "nova" },
		"another text":  func(r *audio.SpeechRequest) { r.Input = "one two four" },
		"faster":        func(r *audio.SpeechRequest) { r.Speed = new(4.0) },
	} {
		other, _, _ := speak(t, func(r *audio.SpeechRequest) { r.ResponseFormat = "pcm"; change(r) })
		assert.NotEqual(t, pcm, other, name)
		assert.Equal(t, name == "faster", len(other) == len(pcm)/4, name)
	}
	blank, _, _ := speak(t, func(r *audio.SpeechRequest) { r.Input = " \n" })
	assert.NotEmpty(t, blank)
}

func TestSpeech_Conformance(t *testing.T) {
	llmhttptest.TestBackend(t, simulator.New(), llmhttptest.BackendOptions{SpeechModel: simulator.ModelSpeech})
}

func TestSpeech_Refused(t *testing.T) {
	for name, req := range map[string]*audio.SpeechRequest{
		"response_format": {Model: simulator.ModelSpeech, Input: "x", ResponseFormat: "flac"},
		"":                {Model: "none", Input: "x"},
	} {
		for _, err := range simulator.New().Speak(t.Context(), req) {
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, name, e.Param)
		}
	}
}
