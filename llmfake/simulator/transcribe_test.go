package simulator_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

func TestBackend_TranscribesAsTheKitRequires(t *testing.T) {
	llmhttptest.TestBackend(t, simulator.New(), llmhttptest.BackendOptions{TranscriptionModel: simulator.ModelTranscribe})
}

func TestBackend_Transcribe(t *testing.T) {
	req := &audio.TranscriptionRequest{
		Model: simulator.ModelTranscribe, Prompt: "Two words",
		File: &llm.File{Name: "a.mp3", Size: 16_000, Content: bytes.NewReader(make([]byte, 16_000))},
	}
	got, err := audio.CollectTranscription(simulator.New().Transcribe(t.Context(), req))
	require.NoError(t, err)
	assert.Equal(t, "This is what somebody says in the recording a.mp3 of 16000 bytes.", got.Text)
	assert.Equal(t, 1.0, got.Duration)
	assert.Len(t, got.Words, 12)
	assert.Len(t, got.Segments, 3)
	assert.Equal(t, 1.0, got.Segments[2].End)
	assert.Equal(t, 10, got.Usage.Tokens.PromptTokensDetails.AudioTokens)

	req.Translate, req.Language = true, "german"
	got, err = audio.CollectTranscription(simulator.New().Transcribe(t.Context(), req))
	require.NoError(t, err)
	assert.Contains(t, got.Text, "In English: ")
	assert.Equal(t, "german", got.Language)

	req.File.Name = "a.txt"
	_, err = audio.CollectTranscription(simulator.New().Transcribe(t.Context(), req))
	e, _ := errors.AsType[*llm.Error](err)
	require.NotNil(t, e)
	assert.Equal(t, "file", e.Param)
}
