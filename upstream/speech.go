// Speech, as bytes or as events.

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/audiolength"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

const mediaSpeech = "audio/*, text/event-stream, application/json" // errors are JSON

// Speak implements [audio.Speaker]. The audio is passed on as it arrives. The tokens are known if
// the server sends events; the Handler measures the duration.
func (b *Backend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		r := speechReply{Sender: reply.Sender[audio.SpeechChunk]{Yield: yield}}
		r.Finish(r.forward(ctx, b, req))
	}
}

// A speechReply passes on the reply to a request for speech.
type speechReply struct {
	reply.Sender[audio.SpeechChunk]
	isRaw       bool   // raw samples were asked for
	contentType string // of the recording, once it has begun; empty if it is not known
	began       bool   // there was audio
}

// forward sends req to the server and yields the reply. It does not yield the error that it returns.
func (r *speechReply) forward(ctx context.Context, b *Backend, req *audio.SpeechRequest) error {
	model := b.client.ModelNames(req.Model)
	asked := *req
	asked.Model = model.Server
	if asked.StreamFormat == "audio" { // the format's default, which servers that do not stream refuse
		asked.StreamFormat = ""
	}
	body, err := asked.MarshalJSON()
	if err != nil {
		return err
	}
	if r.Reply, err = b.client.Send(ctx, b.speech, payload.JSON(body), mediaSpeech, model); err != nil {
		return err
	}
	defer r.Close()
	r.isRaw = req.ResponseFormat == "pcm"
	switch media := r.MediaType(); {
	case media == "text/event-stream":
		return r.readEvents()
	case strings.HasPrefix(media, "text/"), strings.HasSuffix(media, "/json"), strings.HasSuffix(media, "+json"):
		return r.readError()
	}
	return r.readAudio()
}

// readAudio yields a reply that is audio.
func (r *speechReply) readAudio() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && !r.SendWithoutUsage(r.chunk(buf[:n])) {
			return nil
		}
		switch {
		case err == io.EOF && !r.began:
			return r.Invalid("the reply is empty")
		case err == io.EOF:
			return nil
		case err != nil:
			return r.Interrupted(err)
		}
	}
}

// chunk returns a chunk with a piece of audio, which may be empty. Servers may send another format than the one that was
// asked for, and may label it as the latter or not at all. The first piece, for which clients wait, tells what it is.
func (r *speechReply) chunk(piece []byte) *audio.SpeechChunk {
	if !r.began && len(piece) > 0 {
		r.began = true
		r.contentType = audiolength.MediaType(r.Response.Header.Get("Content-Type"), piece, r.isRaw)
	}
	return &audio.SpeechChunk{Audio: piece, ContentType: r.contentType}
}

// readError returns the error for a reply that is neither audio nor events.
func (r *speechReply) readError() error {
	body, err := r.ReadAll()
	if err != nil {
		return err
	}
	var v struct{ Error json.RawMessage }
	_ = json.Unmarshal(body, &v)
	if err := r.Reported(body, v.Error, false); err != nil {
		return err
	}
	return r.Unreadable(body, errors.New("it is no audio"))
}

// A speechEvent is an event of a reply.
type speechEvent struct {
	Type  string
	Audio []byte
	Usage json.RawMessage
	Error json.RawMessage
}

// readEvents yields a reply that is server-sent events.
func (r *speechReply) readEvents() error {
	events := r.Events()
	for {
		e, err := events.Next()
		switch {
		case err == io.EOF, err == nil && reply.IsDone(e.Data):
			return r.Invalid("the stream ended without speech.audio.done")
		case err != nil:
			return r.Interrupted(err)
		case e.Kind == reply.KindPing:
			continue
		case e.Kind == reply.KindError:
			return r.Event(e.Data)
		}
		if more, err := r.forwardEvent(e.Data); err != nil || !more {
			return err
		}
	}
}

// forwardEvent yields what an event has. It returns false if nothing more is to be read.
func (r *speechReply) forwardEvent(data []byte) (more bool, err error) {
	var e speechEvent
	if err := r.Decode(data, &e); err != nil {
		return false, err
	}
	if err := r.Reported(data, e.Error, reply.IsEventType(e.Type)); err != nil {
		return false, err
	}
	switch e.Type {
	case "speech.audio.delta":
		return r.Send(r.chunk(e.Audio), nil), nil
	case "speech.audio.done":
		r.MarkComplete()
		if u := r.Usage(data, mediaUsage(e.Usage)); u != nil {
			c := r.chunk(nil)
			c.Usage = u
			r.Send(c, u)
		}
		return false, nil
	}
	return true, nil // is not known
}
