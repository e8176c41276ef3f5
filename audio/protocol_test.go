package audio_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

// A wholeSpeech encodes replies that are sent at once.
type wholeSpeech struct {
	contentType string
	err         error
}

func (e wholeSpeech) Framing() llmhttp.Framing {
	return llmhttp.Framing{Whole: true, ContentType: e.contentType}
}

func (wholeSpeech) AppendChunk(b []byte, c *audio.SpeechChunk) ([]byte, error) {
	return append(b, c.Audio...), nil
}

func (e wholeSpeech) AppendEnd(b []byte, _ *llm.Usage) ([]byte, error) {
	return append(b, " end"...), e.err
}

func (wholeSpeech) AppendFailure(b []byte, _ *llm.Error) []byte { return append(b, " failure"...) }

// serveSaying serves a route of a Protocol whose request has the text to speak, and nothing else. Some texts
// are mistakes of the Protocol.
func serveSaying(c *llmhttp.Call) error {
	var say string
	if err := c.Body(func(b []byte) error { return llmhttp.DecodeJSON(c.Context(), b, &say) }); err != nil {
		return err
	}
	req := &audio.SpeechRequest{Model: "m", Input: say, Voice: audio.SpeechVoice{Name: "v"}}
	if err := req.Validate(); err != nil {
		return err
	}
	if err := req.CheckLength(0); err != nil {
		return err
	}
	encoder := wholeSpeech{contentType: "text/plain"}
	switch say {
	case "no end":
		encoder.err = assert.AnError
	case "no type":
		encoder.contentType = ""
	}
	return audio.ServeSpeech(c, req, encoder)
}

// A Protocol may send speech in a form of its own, also as a whole reply.
func TestServeSpeech_Protocol(t *testing.T) {
	works := says(nil, pieces("One, ", "two.")...)
	p := endpointtest.NewProtocol("/say", audio.SpeechEndpoint, serveSaying)
	endpointtest.CheckProtocol(t, p, audio.OperationSpeech, llmhttp.Options{}, map[string]endpointtest.ProtocolTest{
		"complete":          {works, llmhttp.Key{}, `"x"`, 200, "One, two. end", 1},
		"not valid":         {works, llmhttp.Key{}, `""`, 400, `{"message":"Missing required parameter: 'input'."}`, 0},
		"too long":          {works, llmhttp.Key{}, `"` + strings.Repeat("x", 4097) + `"`, 400, "string too long", 0},
		"scope":             {works, llmhttp.Key{Scopes: []llmhttp.Scope{audio.ScopeTranscriptions}}, `"x"`, 403, "Missing scope: speech", 0},
		"tokens":            {works, llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, `"Hello, how are you?"`, 429, `{"message":`, 0},
		"no Speaker":        {endpointtest.ChatOnly, llmhttp.Key{}, `"x"`, 404, `{"message":"Invalid URL (POST /say)"}`, 0},
		"the Backend fails": {says(assert.AnError), llmhttp.Key{}, `"x"`, 500, `{"message":`, 1},
		"no audio":          {says(nil), llmhttp.Key{}, `"x"`, 500, `{"message":`, 1},
		"no end":            {works, llmhttp.Key{}, `"no end"`, 500, `{"message":`, 1},
		"no Content-Type":   {works, llmhttp.Key{}, `"no type"`, 500, `{"message":`, 0},
	})
}

// A wholeText encodes transcriptions as their text.
type wholeText struct{}

func (wholeText) Framing() llmhttp.Framing {
	return llmhttp.Framing{Whole: true, ContentType: "text/plain"}
}

func (wholeText) AppendChunk(b []byte, c *audio.TranscriptionChunk) ([]byte, error) {
	return append(b, c.Text...), nil
}

func (wholeText) AppendEnd(b []byte, _ *llm.Usage) ([]byte, error) { return append(b, " end"...), nil }

func (wholeText) AppendFailure(b []byte, _ *llm.Error) []byte { return b }

// A Protocol may have recordings in fields of other names.
func TestServeTranscription_Protocol(t *testing.T) {
	store := new(form.Store)
	serve := func(c *llmhttp.Call) error {
		req := &audio.TranscriptionRequest{Model: "m"}
		err := store.Read(c, []string{"image"}, func(f *form.Form) (err error) {
			if req.File, err = f.File("image"); err != nil {
				return err
			}
			return req.Validate()
		})
		if err != nil {
			return err
		}
		return audio.ServeTranscription(c, req, wholeText{})
	}
	works := writes(spoken()...)
	recording, empty := endpointtest.Form(t, `{"image":"RIFF"}`), endpointtest.Form(t, `{"image":""}`)
	p := endpointtest.NewProtocol("/listen", audio.TranscriptionEndpoint, serve)
	endpointtest.CheckProtocol(t, p, audio.OperationTranscriptions, llmhttp.Options{}, map[string]endpointtest.ProtocolTest{
		"complete":       {works, llmhttp.Key{}, recording, 200, "Hello world. end", 1},
		"not valid":      {works, llmhttp.Key{}, empty, 400, "the file is empty", 0},
		"no form":        {works, llmhttp.Key{}, "{}", 415, `{"message":"Unsupported content type`, 0},
		"scope":          {works, llmhttp.Key{Scopes: []llmhttp.Scope{audio.ScopeSpeech}}, recording, 403, "Missing scope: transcriptions", 0},
		"no Transcriber": {endpointtest.ChatOnly, llmhttp.Key{}, recording, 404, `{"message":"Invalid URL (POST /listen)"}`, 0},
		"no chunk":       {writes(), llmhttp.Key{}, recording, 500, `{"message":`, 1},
	})
}

// A Handler without the routes does not serve audio, and neither does a Backend without the methods.
func TestRoutes(t *testing.T) {
	routes := func(from, to int) func() []llmhttp.Route {
		return func() []llmhttp.Route { return audio.Routes(nil)[from:to] }
	}
	endpointtest.CheckMounted(t, "audio", routes(0, 1), says(nil, pieces("a")...), speechBody)
	endpointtest.CheckMounted(t, "audio", routes(1, 3), writes(spoken()...), endpointtest.Form(t, `{"file":"x","model":"m"}`))
	assert.PanicsWithValue(t, "audio: Options.Files: form: Store.Dir: stat /none: no such file or directory", func() {
		audio.Routes(&audio.Options{Files: &form.Store{Dir: "/none"}})
	})
}

// Members that change the model or the price of a request at other servers are refused, unless the host
// allows them.
func TestRoutes_UnknownMembers(t *testing.T) {
	const body = `{"model":"m","input":"x","voice":"v","lora":[]}`
	e := newServer(t, says(nil, pieces("a")...), llmhttp.Options{}).PostRefused(speechPath, body, 400)
	assert.Equal(t, "lora", e.Param)
	assert.Equal(t, "unknown_parameter", e.Code)
	var got llm.Extra
	b := speaking(func(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
		got = req.Extra
		return says(nil, pieces("a")...)(ctx, req)
	})
	w := newServer(t, b, llmhttp.Options{Accept: llmhttp.AcceptOptions{UnknownMembers: func(string) bool { return true }}}).Post(speechPath, body)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Len(t, got, 1)
}
