package audio

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonjoin"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// CollectTranscription joins the chunks of s to one. If s fails, it returns the error, and what came
// before. A stream without a chunk is an error.
func CollectTranscription(s TranscriptionStream) (*TranscriptionChunk, error) {
	var joined joinedTranscription
	began := false
	for c, err := range s {
		if err != nil {
			return joined.chunk(), err
		}
		began = true
		if c != nil {
			joined.add(c)
		}
	}
	if !began {
		return joined.chunk(), callctx.ErrNoChunk
	}
	return joined.chunk(), nil
}

// A joinedTranscription joins the chunks of a reply.
type joinedTranscription struct {
	whole TranscriptionChunk // without Text and Extra
	text  jsonjoin.Text
	extra jsonjoin.Members
}

// add adds a chunk, whose memory it may keep.
func (j *joinedTranscription) add(c *TranscriptionChunk) {
	w := &j.whole
	j.text.Add(c.Text)
	j.extra.Add(c.Extra)
	w.Language, w.Duration, w.Usage = cmp.Or(c.Language, w.Language), cmp.Or(c.Duration, w.Duration), cmp.Or(c.Usage, w.Usage)
	if c.Segments != nil && w.Segments == nil {
		w.Segments = []TranscriptionSegment{}
	}
	w.Segments = append(w.Segments, c.Segments...)
	w.Words = append(w.Words, c.Words...)
}

// chunk returns the reply.
func (j *joinedTranscription) chunk() *TranscriptionChunk {
	c := j.whole
	c.Text, c.Extra = j.text.String(), j.extra.Join(false)
	c.Duration = c.length()
	return &c
}

// complete sets the Usage to what the request is charged for: u, if that has tokens.
func (c *TranscriptionChunk) complete(u *llm.Usage) {
	switch reported := c.Usage; {
	case u.Total() > 0:
		c.Usage = &TranscriptionUsage{Tokens: u}
	case reported != nil && reported.Seconds > 0:
		c.Usage = &TranscriptionUsage{Seconds: reported.Seconds}
	case c.Duration > 0:
		c.Usage = &TranscriptionUsage{Seconds: c.Duration}
	default:
		c.Usage = nil
	}
}

// A wholeTranscription encodes a reply that is sent at once.
type wholeTranscription struct {
	model, format   string
	translate       bool
	segments, words bool // of TranscriptionVerbose: they are sent
	joined          joinedTranscription
}

func newWholeTranscription(r *TranscriptionRequest) *wholeTranscription {
	return &wholeTranscription{
		model:     r.Model,
		format:    r.ResponseFormat,
		translate: r.Translate,
		segments:  r.WantsSegments(),
		words:     r.WantsWords(),
	}
}

// contentTypeText is that of texts and subtitles. SDKs take a reply for a text if it is not JSON.
const contentTypeText = "text/plain; charset=utf-8"

func (e *wholeTranscription) Framing() llmhttp.Framing {
	f := llmhttp.Framing{Whole: true, ContentType: "application/json"}
	switch e.format {
	case TranscriptionText, TranscriptionSRT, TranscriptionVTT:
		f.ContentType = contentTypeText
	}
	return f
}

func (e *wholeTranscription) AppendChunk(b []byte, c *TranscriptionChunk) ([]byte, error) {
	e.joined.add(c)
	return b, nil
}

func (e *wholeTranscription) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	c := e.joined.chunk()
	c.complete(u)
	switch e.format {
	case TranscriptionText:
		return append(append(b, strings.ToValidUTF8(c.Text, invalidText)...), '\n'), nil
	case TranscriptionSRT, TranscriptionVTT:
		if len(c.Segments) == 0 && c.Text != "" {
			return b, invalid.Param(
				"invalid_value",
				"response_format",
				"Invalid 'response_format': '%s'. There are no times for the text of the model '%s'. Supported values are: 'json' and 'text'.",
				e.format,
				param.Echo(e.model),
			)
		}
		if e.format == TranscriptionSRT {
			return appendSRT(b, c.Segments), nil
		}
		return appendVTT(b, c.Segments), nil
	case TranscriptionVerbose:
		return e.appendVerbose(b, c)
	case TranscriptionDiarized:
		return appendDiarized(b, c)
	}
	return appendTranscriptionText(append(b, `{"text":`...), c)
}

// AppendFailure is not called for a whole reply.
func (*wholeTranscription) AppendFailure(b []byte, _ *llm.Error) []byte { return b }

// appendTranscriptionText appends the text of c, and the members of an object that follow it in
// replies without times.
func appendTranscriptionText(b []byte, c *TranscriptionChunk) (_ []byte, err error) {
	b = jsonwire.AppendString(b, c.Text)
	if c.Usage != nil {
		if b, err = transcriptionUsageJSON.Append(append(b, `,"usage":`...), c.Usage); err != nil {
			return b, err
		}
	}
	b, err = transcriptionChunkJSON.AppendExtra(b, c)
	return append(b, '}'), err
}

// appendVerbose appends an object of TranscriptionVerbose, with the members that clients expect.
func (e *wholeTranscription) appendVerbose(b []byte, c *TranscriptionChunk) ([]byte, error) {
	for i := range c.Segments {
		c.Segments[i].ID = strconv.Itoa(i)
	}
	switch {
	case !e.segments:
		c.Segments = nil
	case c.Segments == nil:
		c.Segments = []TranscriptionSegment{}
	}
	if !e.words {
		c.Words = nil
	}
	object, err := transcriptionChunkJSON.Append(nil, c)
	if err != nil {
		return b, err
	}
	return append(appendTask(b, e.translate), object[len("{"):]...), nil
}

// appendDiarized appends an object of TranscriptionDiarized.
func appendDiarized(b []byte, c *TranscriptionChunk) (_ []byte, err error) {
	b = append(appendTask(b, false), `"duration":`...)
	b, _ = decimalJSON.Append(b, &c.Duration)
	b = append(b, `,"segments":[`...)
	for i := range c.Segments {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSpokenSegment(b, &c.Segments[i], i)
	}
	return appendTranscriptionText(append(b, `],"text":`...), c)
}

// appendTask begins an object with the member that tells what was done.
func appendTask(b []byte, translate bool) []byte {
	if translate {
		return append(b, `{"task":"translate",`...)
	}
	return append(b, `{"task":"transcribe",`...)
}

const eventSegment = "transcript.text.segment"

// appendSpokenSegment appends segment i as clients get it that want to know who speaks.
func appendSpokenSegment(b []byte, s *TranscriptionSegment, i int) []byte {
	b = append(b, `{"type":"`+eventSegment+`","id":`...)
	b = jsonwire.AppendString(b, cmp.Or(s.ID, "seg_"+strconv.Itoa(i)))
	b, _ = decimalJSON.Append(append(b, `,"start":`...), &s.Start)
	b, _ = decimalJSON.Append(append(b, `,"end":`...), &s.End)
	b = jsonwire.AppendString(append(b, `,"text":`...), s.Text)
	return append(jsonwire.AppendString(append(b, `,"speaker":`...), s.Speaker), '}')
}

// transcriptionEvents encodes a reply that is a stream of server-sent events.
type transcriptionEvents struct {
	diarized bool
	joined   joinedTranscription
	rest     string // the beginning of a character, of which the next chunk has more
	segments int    // that were sent
}

func (*transcriptionEvents) Framing() llmhttp.Framing { return llmhttp.EventStream() }

func (e *transcriptionEvents) AppendChunk(b []byte, c *TranscriptionChunk) ([]byte, error) {
	e.joined.add(c)
	text := e.rest + c.Text
	complete := len(text) - texts.IncompleteSuffixLen(text)
	e.rest = text[complete:]
	b, err := appendTranscriptDeltas(b, text[:complete], c)
	for i := range c.Segments {
		if e.diarized {
			b = openai.AppendEventEnd(appendSpokenSegment(openai.AppendEventStart(b), &c.Segments[i], e.segments))
			e.segments++
		}
	}
	return b, err
}

// appendTranscriptDeltas appends events with a text. The first one has the other members of c.
func appendTranscriptDeltas(b []byte, text string, c *TranscriptionChunk) (_ []byte, err error) {
	for first := true; text != "" && err == nil; first = false {
		room := bounds.DeltaText
		var delta string
		delta, text = texts.SplitText(text, &room)
		b = jsonwire.AppendString(append(openai.AppendEventStart(b), `{"type":"transcript.text.delta","delta":`...), delta)
		if first {
			b, err = transcriptionChunkJSON.AppendExtra(b, c)
		}
		b = openai.AppendEventEnd(append(b, '}'))
	}
	return b, err
}

func (e *transcriptionEvents) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	c := e.joined.chunk()
	c.complete(u)
	b, _ = appendTranscriptDeltas(b, e.rest, new(TranscriptionChunk))
	b = append(openai.AppendEventStart(b), `{"type":"transcript.text.done","text":`...)
	b, err := appendTranscriptionText(b, c)
	return openai.AppendDone(openai.AppendEventEnd(b)), err
}

func (*transcriptionEvents) AppendFailure(b []byte, e *llm.Error) []byte {
	return openai.AppendErrorEvent(b, e)
}
