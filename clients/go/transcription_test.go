package clients

import (
	"bytes"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	goopenai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recording is a file that the simulated model takes for a second.
func recording() *bytes.Reader { return bytes.NewReader(make([]byte, 16_000)) }

const recordedText = "This is what somebody says in the recording speech.mp3 of 16000 bytes."

func TestOpenAITranscription(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newOpenAIClient(s)
	params := func() openaigo.AudioTranscriptionNewParams {
		return openaigo.AudioTranscriptionNewParams{Model: "demo-transcribe", File: openaigo.File(recording(), "speech.mp3", "audio/mpeg")}
	}
	whole, err := client.Audio.Transcriptions.New(testContext(t), params())
	require.NoError(t, err)
	assert.Equal(t, recordedText, whole.Text)
	assert.EqualValues(t, 10, whole.Usage.InputTokenDetails.AudioTokens)

	p := params()
	p.ResponseFormat, p.TimestampGranularities = "verbose_json", []string{"word", "segment"}
	verbose, err := client.Audio.Transcriptions.New(testContext(t), p)
	require.NoError(t, err)
	got := verbose.AsTranscriptionVerbose()
	assert.Equal(t, 1.0, got.Duration)
	assert.Len(t, got.Words, 12)
	require.Len(t, got.Segments, 3)
	assert.EqualValues(t, 2, got.Segments[2].ID)

	// It writes the file first, and the field stream last.
	stream := client.Audio.Transcriptions.NewStreaming(testContext(t), params())
	text, last := "", openaigo.TranscriptionStreamEventUnion{}
	for stream.Next() {
		last = stream.Current()
		text += last.AsTranscriptTextDelta().Delta
	}
	require.NoError(t, stream.Err())
	assert.Equal(t, recordedText, text)
	assert.Equal(t, "transcript.text.done", last.Type)
	assert.Equal(t, recordedText, last.AsTranscriptTextDone().Text)
	assert.EqualValues(t, 10, last.AsTranscriptTextDone().Usage.InputTokens)

	//lint:ignore SA1019 deprecated, but still supported
	translated, err := client.Audio.Translations.New(testContext(t), openaigo.AudioTranslationNewParams{
		Model: "demo-transcribe", File: openaigo.File(recording(), "speech.mp3", "audio/mpeg"),
	})
	require.NoError(t, err)
	assert.Equal(t, "In English: "+recordedText, translated.Text)

	var subtitles string
	p = params()
	p.ResponseFormat = "srt"
	require.NoError(t, client.Post(testContext(t), "audio/transcriptions", p, &subtitles))
	assert.Contains(t, subtitles, "1\n00:00:00,000 --> ")
	assert.EqualValues(t, 5, s.usage(t).Requests)

	var apiErr *openaigo.Error
	p = params()
	p.Temperature = param.NewOpt(2.0)
	_, err = client.Audio.Transcriptions.New(testContext(t), p)
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, "temperature", apiErr.Param)
	p = params()
	p.File = openaigo.File(recording(), "notes.txt", "text/plain")
	_, err = client.Audio.Transcriptions.New(testContext(t), p)
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 400, apiErr.StatusCode)
	assert.Equal(t, "file", apiErr.Param)
}

func TestGoOpenAITranscription(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)
	for format, want := range map[goopenai.AudioResponseFormat]string{goopenai.AudioResponseFormatJSON: recordedText, goopenai.AudioResponseFormatText: recordedText + "\n", goopenai.AudioResponseFormatVTT: "WEBVTT"} {
		res, err := client.CreateTranscription(testContext(t), goopenai.AudioRequest{Model: "demo-transcribe", FilePath: "speech.mp3", Reader: recording(), Format: format})
		require.NoError(t, err)
		assert.Contains(t, res.Text, want)
	}
}
