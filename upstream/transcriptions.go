// Transcriptions and translations of recordings.

package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// Transcribe implements [audio.Transcriber]. The recording is not copied: it is read while it is
// sent. Of formats that are texts or subtitles the server is asked for the JSON from which the
// Handler makes them, so that the usage is known.
func (b *Backend) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		r := transcriptionReply{Sender: reply.Sender[audio.TranscriptionChunk]{Yield: yield}}
		r.Finish(r.forward(ctx, b, req))
	}
}

// forward sends req to the server and yields the chunks of the reply. It does not yield the error that
// it returns.
func (r *transcriptionReply) forward(ctx context.Context, b *Backend, req *audio.TranscriptionRequest) (err error) {
	model := b.client.ModelNames(req.Model)
	e, accept := b.transcriptions, client.MediaJSON
	if req.Translate {
		e = b.translations
	}
	if req.Stream {
		accept = client.MediaEvents
	}
	body, err := encodeTranscription(req, model.Server)
	if err != nil {
		return err
	}
	if r.Reply, err = b.client.Send(ctx, e, body, accept, model); err != nil {
		return err
	}
	defer r.Close()
	return r.read()
}

// encodeTranscription returns the form for the server.
func encodeTranscription(r *audio.TranscriptionRequest, model string) (payload.Payload, error) {
	f := payload.NewForm()
	f.Add("model", model)
	f.Add("language", r.Language)
	f.Add("prompt", r.Prompt)
	f.Add("response_format", serverFormat(r))
	temperature := ""
	if r.Temperature != nil {
		temperature = strconv.FormatFloat(*r.Temperature, 'g', -1, 64)
	}
	f.Add("temperature", temperature)
	f.AddList("timestamp_granularities[]", granularities(r))
	f.AddList("include[]", r.Include)
	f.Add("stream", formBool(r.Stream))
	f.AddFile("file", r.File, "audio")
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		f.AddExtra(name, r.Extra[name])
	}
	return f.Payload()
}

// serverFormat returns the response_format for the server.
func serverFormat(r *audio.TranscriptionRequest) string {
	switch r.ResponseFormat {
	case audio.TranscriptionText:
		return audio.TranscriptionJSON
	case audio.TranscriptionSRT, audio.TranscriptionVTT:
		return audio.TranscriptionVerbose
	}
	return r.ResponseFormat
}

// granularities returns the timestamp_granularities for the server.
func granularities(r *audio.TranscriptionRequest) []string {
	if r.ResponseFormat == audio.TranscriptionVerbose {
		return r.TimestampGranularities
	}
	return nil
}

// A transcriptionReply reads the reply to a request for a transcription.
type transcriptionReply struct {
	reply.Sender[audio.TranscriptionChunk]
	began     bool // a chunk with text was yielded
	segmented bool // a chunk with a segment was yielded
}

// read reads the reply as a stream or as a whole reply, depending on its first byte: servers whose
// model cannot stream ignore that the client asks for it.
func (r *transcriptionReply) read() error {
	isStream, err := r.IsStream()
	if err != nil {
		return err
	}
	if !isStream {
		return r.readWhole()
	}
	return r.readStream()
}

func (r *transcriptionReply) readWhole() error {
	body, err := r.ReadAll()
	if err != nil {
		return err
	}
	defer r.Release()
	chunk, err := r.decode(body)
	if err != nil {
		return err
	}
	var required struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(body, &required) != nil || required.Text == nil {
		return r.Invalid("the reply has no text")
	}
	r.Send(chunk, tokensOf(chunk))
	return nil
}

// tokensOf returns the tokens that a chunk reports, or nil.
func tokensOf(c *audio.TranscriptionChunk) *llm.Usage {
	if c.Usage == nil {
		return nil
	}
	return c.Usage.Tokens
}

// decode decodes a whole reply, or an event.
func (r *transcriptionReply) decode(data []byte) (*audio.TranscriptionChunk, error) {
	chunk := new(audio.TranscriptionChunk)
	if err := r.Decode(data, chunk); err != nil {
		return nil, err
	}
	if err := r.Reported(data, chunk.Extra["error"], chunk.Text != "" || chunk.Extra["delta"] != nil); err != nil {
		return nil, err
	}
	delete(chunk.Extra, "error")
	if tokens, seconds := r.RecordingUsage(data); tokens != nil || seconds > 0 {
		if tokens != nil { // there is nothing else in a transcription's
			tokens.Extra, tokens.PromptTokensDetails.Extra, tokens.CompletionTokensDetails.Extra = nil, nil, nil
		}
		chunk.Usage = &audio.TranscriptionUsage{Tokens: tokens, Seconds: seconds}
	}
	return chunk, nil
}

// The types of events.
const (
	eventDelta   = "transcript.text.delta"
	eventSegment = "transcript.text.segment"
	eventDone    = "transcript.text.done"
)

// eventSpellings are the types of Mistral's events, which have the text of a delta in "text".
var eventSpellings = map[string]string{
	"transcription.text.delta": eventDelta, "transcription.segment": eventSegment, "transcription.done": eventDone,
}

func (r *transcriptionReply) readStream() error {
	events := r.Events()
	for {
		e, err := events.Next()
		switch {
		case err == io.EOF:
			return r.Invalid("the stream ended with neither " + eventDone + " nor [DONE]")
		case err != nil:
			return r.Interrupted(err)
		case e.Kind == reply.KindPing:
			continue
		case reply.IsDone(e.Data):
			r.MarkComplete()
			return nil
		case e.Kind == reply.KindError:
			return r.Event(e.Data)
		}
		chunk, kind, err := r.decodeEvent(e.Data)
		if err != nil {
			return err
		}
		if !r.Send(chunk, tokensOf(chunk)) {
			return nil
		}
		if kind == eventDone {
			r.MarkComplete() // what follows has no meaning
			return nil
		}
	}
}

// decodeEvent returns the chunk of an event, and the type of that.
func (r *transcriptionReply) decodeEvent(data []byte) (chunk *audio.TranscriptionChunk, kind string, err error) {
	if chunk, err = r.decode(data); err != nil {
		return nil, "", err
	}
	var e struct {
		Type, Delta string
		Choices     []struct {
			Delta struct{ Content string }
		}
	}
	if err := r.Decode(data, &e); err != nil {
		return nil, "", err
	}
	delete(chunk.Extra, "type")
	delete(chunk.Extra, "delta")
	e.Type = cmp.Or(eventSpellings[e.Type], e.Type)
	switch e.Type {
	case eventDelta:
		chunk.Text = cmp.Or(e.Delta, chunk.Text)
	case eventSegment:
		var s audio.TranscriptionSegment
		if err := r.Decode(data, &s); err != nil {
			return nil, "", err
		}
		delete(s.Extra, "type")
		r.segmented = true
		return &audio.TranscriptionChunk{Segments: []audio.TranscriptionSegment{s}}, e.Type, nil
	case eventDone:
		if r.began { // the deltas had the text and what belongs to it
			chunk.Text, chunk.Extra = "", nil
		}
		if r.segmented {
			chunk.Segments = nil
		}
	case "": // vLLM sends chunks like those of a chat
		chunk = &audio.TranscriptionChunk{Usage: chunk.Usage}
		for _, choice := range e.Choices {
			chunk.Text += choice.Delta.Content
		}
	default: // of a later version of the API
		return new(audio.TranscriptionChunk), e.Type, nil
	}
	r.began = r.began || chunk.Text != ""
	return chunk, e.Type, nil
}
