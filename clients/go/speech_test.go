package clients

import (
	"errors"
	"io"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	goopenai "github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// secondsPCM is the number of bytes of a second of audio in the format pcm.
const secondPCM = 48_000

func TestOpenAISpeech(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newOpenAIClient(s)
	params := openaigo.AudioSpeechNewParams{
		Model: "demo-speech", Input: "one two three", Voice: openaigo.AudioSpeechNewParamsVoiceUnion{OfString: param.NewOpt("alloy")},
	}
	for format, mediaType := range map[openaigo.AudioSpeechNewParamsResponseFormat]string{"": "audio/mpeg", "wav": "audio/wav", "pcm": "audio/pcm"} {
		params.ResponseFormat = format
		res, err := client.Audio.Speech.New(testContext(t), params)
		require.NoError(t, err)
		defer res.Body.Close()
		audio, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		assert.Equal(t, mediaType, res.Header.Get("Content-Type"))
		if format == "pcm" {
			assert.Len(t, audio, 3*192*secondPCM/1000)
		}
		assert.NotEmpty(t, audio)
	}

	params.StreamFormat = openaigo.AudioSpeechNewParamsStreamFormatSSE
	params.Voice = openaigo.AudioSpeechNewParamsVoiceUnion{OfAudioSpeechNewsVoiceID: &openaigo.AudioSpeechNewParamsVoiceID{ID: "voice_1"}}
	res, err := client.Audio.Speech.New(testContext(t), params)
	require.NoError(t, err)
	type event struct {
		Type  string
		Audio []byte
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		}
	}
	stream := ssestream.NewStream[event](ssestream.NewDecoder(res), nil)
	var audio []byte
	var last event
	for stream.Next() {
		last = stream.Current()
		audio = append(audio, last.Audio...)
	}
	require.NoError(t, stream.Err())
	assert.Equal(t, "speech.audio.done", last.Type)
	assert.EqualValues(t, 3, last.Usage.Input)
	assert.EqualValues(t, 24, last.Usage.Output)
	assert.NotEmpty(t, audio)
	u := s.usage(t)
	assert.EqualValues(t, 4, u.Requests)

	var apiErr *openaigo.Error
	params.Model = "missing"
	_, err = client.Audio.Speech.New(testContext(t), params)
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 404, apiErr.StatusCode)
	assert.Equal(t, "model_not_found", apiErr.Code)
	params.Model, params.ResponseFormat = "demo-speech", "flac"
	_, err = client.Audio.Speech.New(testContext(t), params)
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, "response_format", apiErr.Param)
}

func TestGoOpenAISpeech(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)
	request := goopenai.CreateSpeechRequest{Model: "demo-speech", Input: "one two", Voice: goopenai.VoiceAlloy, ResponseFormat: goopenai.SpeechResponseFormatPcm, Speed: 2}
	res, err := client.CreateSpeech(testContext(t), request)
	require.NoError(t, err)
	defer res.Close()
	audio, err := io.ReadAll(res)
	require.NoError(t, err)
	assert.Len(t, audio, 192*secondPCM/1000)

	request.Input = ""
	_, err = client.CreateSpeech(testContext(t), request)
	var apiErr *goopenai.APIError
	require.True(t, errors.As(err, &apiErr), "%v", err)
	assert.Equal(t, "input", *apiErr.Param)
}
