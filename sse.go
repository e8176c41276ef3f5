package llmhttp

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Proxies must neither keep a stream back nor change it: nginx heeds
// X-Accel-Buffering, others Cache-Control.
var (
	mediaEvents  = []string{"text/event-stream; charset=utf-8"}
	cacheNever   = []string{"no-cache, no-transform"}
	bufferingOff = []string{"no"}
)

const (
	// eventDone ends a stream that is complete.
	eventDone = "data: [DONE]\n\n"

	// keepAlive is a comment without the empty line that would end an event:
	// that is the one form which every official client, old ones included,
	// takes for nothing.
	keepAlive = ": keep-alive\n"
)

const (
	// burst is how soon after the last a chunk comes that is taken for one of
	// many that are ready: those share writes.
	burst = 50 * time.Microsecond

	// maxBatch is how many bytes may wait for a common write.
	maxBatch = 15 << 10
)

// An sseWriter is the sink that writes a stream. All its methods are called
// with the exchange's mu held.
//
// A chunk that the Backend took its time for is written at once. If chunks
// come one upon the other, the first of them wakes a goroutine that writes what
// has gathered as soon as it gets to run, which is at the latest when the
// Backend pauses.
type sseWriter struct {
	x      *exchange
	head   []byte  // of each event's JSON: id, object, created and model
	buf    *buffer // what waits; nil if nothing does
	awake  bool    // the goroutine is about to run
	began  bool    // the headers are written
	err    error   // a write failed
	faulty error   // the Backend's JSON cannot be encoded
}

func (s *sseWriter) open(index int) {
	b := strconv.AppendInt(append(s.event(), `,"choices":[{"index":`...), int64(index), 10)
	s.endEvent(append(b, `,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`...), nil)
}

func (s *sseWriter) delta(c *ChunkChoice, extra Extra) {
	for c.Delta.isLong() {
		rest := c.Delta.cut()
		s.deltaEvent(c, extra)
		c.Delta, c.Extra, extra = rest, nil, nil
	}
	s.deltaEvent(c, extra)
}

// longText is how many bytes a piece of text may have: escaped it is at most
// six times as long, and old clients read lines of up to 64 KiB.
const longText = 8 << 10

func (d *Delta) isLong() bool {
	n := len(d.Reasoning) + len(d.Content)
	for i := range d.ToolCalls {
		n += len(d.ToolCalls[i].Function.Arguments)
	}
	return n > longText
}

// cut shortens d, which is long, and returns the rest.
func (d *Delta) cut() (rest Delta) {
	room := longText
	d.Reasoning, rest.Reasoning = cutText(d.Reasoning, &room)
	d.Content, rest.Content = cutText(d.Content, &room)
	for i := range d.ToolCalls {
		f := &d.ToolCalls[i].Function
		more := ToolCallDelta{Index: d.ToolCalls[i].Index}
		if f.Arguments, more.Function.Arguments = cutText(f.Arguments, &room); more.Function.Arguments != "" {
			rest.ToolCalls = append(rest.ToolCalls, more)
		}
	}
	return rest
}

// cutText cuts s behind the last character for which there is room.
func cutText(s string, room *int) (head, rest string) {
	if len(s) <= *room {
		*room -= len(s)
		return s, ""
	}
	n := *room
	*room = 0
	n -= partial(s[:n])
	return s[:n], s[n:]
}

func (s *sseWriter) deltaEvent(c *ChunkChoice, extra Extra) {
	c.Delta.Role = ""
	d := &c.Delta
	if d.Reasoning == "" && d.ReasoningDetails == nil && d.Refusal == "" && d.ToolCalls == nil && d.Extra == nil && c.Extra == nil && extra == nil {
		b := strconv.AppendInt(append(s.event(), `,"choices":[{"index":`...), int64(c.Index), 10)
		b = appendString(append(b, `,"delta":{"content":`...), d.Content)
		s.endEvent(append(b, `},"finish_reason":null}]}`...), nil)
		return
	}
	s.rest(streamRest{Choices: []ChunkChoice{*c}, Extra: extra})
}

func (s *sseWriter) end(c *ChunkChoice, extra Extra) {
	s.rest(streamRest{Choices: []endChoice{{Index: c.Index, FinishReason: c.FinishReason, StopSequence: c.StopSequence, Extra: c.Extra}}, Extra: extra})
}

// A streamRest is what an event has behind its head.
type streamRest struct {
	Choices any    `json:"choices"`
	Usage   *Usage `json:"usage,omitzero"`
	Extra   Extra  `json:",embed"`

	ID      struct{} `json:"id,omitzero"` // these names are the head's
	Object  struct{} `json:"object,omitzero"`
	Created struct{} `json:"created,omitzero"`
	Model   struct{} `json:"model,omitzero"`
	Error   struct{} `json:"error,omitzero"`
}

func (r *streamRest) fields() any {
	type fields streamRest
	return (*fields)(r)
}

type endChoice struct {
	Index int `json:"index"`
	Delta struct {
		Content *string `json:"content"`
	} `json:"delta"`
	FinishReason FinishReason `json:"finish_reason"`
	StopSequence string       `json:"stop_reason,omitzero"`
	Extra        Extra        `json:",embed"`
}

func (c *endChoice) fields() any {
	type fields endChoice
	return (*fields)(c)
}

func (s *sseWriter) rest(r streamRest) {
	b := s.event()
	start := len(b)
	b, err := appendJSON(b, &r)
	if err != nil {
		b = append(b[:start], '}')
	} else {
		b[start] = ','
	}
	s.endEvent(b, err)
}

// nulls writes nothing: openai-go's accumulator takes an empty delta for news.
func (s *sseWriter) nulls(int, Extra) {}

// usage writes the chunk that a client gets if it asked for it, and in it what
// the Backend has told after the last choice. Others get no chunk without
// choices: clients that look at the first of them would fail.
func (s *sseWriter) usage(u *Usage, extra Extra) {
	s.rest(streamRest{Choices: []ChunkChoice{}, Usage: u, Extra: extra})
}

// event begins an event whose JSON has its head.
func (s *sseWriter) event() []byte {
	if s.head == nil {
		s.head = s.x.replyHead()
	}
	return append(s.waiting().b, s.head...)
}

func (s *sseWriter) endEvent(b []byte, err error) {
	s.buf.b = append(b, "\n\n"...)
	if err != nil && s.faulty == nil {
		s.faulty = err
	}
}

// waiting returns the buffer of what waits.
func (s *sseWriter) waiting() *buffer {
	if s.buf == nil {
		s.buf = getBuffer(1 << 10)
	}
	return s.buf
}

// replyHead returns what each event of a stream begins with.
func (x *exchange) replyHead() []byte {
	id, created, model := x.replyIdentity()
	b := appendString([]byte(`data: {"id":`), id)
	b = append(b, `,"object":"`+objectChunk+`","created":`...)
	b = strconv.AppendInt(b, created, 10)
	return appendString(append(b, `,"model":`...), model)
}

// push writes what a chunk has brought, or sees to it that somebody will. The
// chunk came at the time now since arrival, and the one before it was dealt
// with at last.
func (s *sseWriter) push(now, last time.Duration) error {
	switch {
	case s.faulty != nil:
		return s.faulty
	case s.err != nil:
		return errGone
	case s.buf == nil:
		return nil
	case s.began && now-last < burst && len(s.buf.b) < maxBatch:
		if !s.awake {
			s.awake = true
			go s.wake()
		}
		return nil
	}
	return s.pass(now)
}

// pass writes what waits. While it does, the Backend could not speak: a slow
// client makes no silent Backend.
func (s *sseWriter) pass(now time.Duration) error {
	err := s.flush(now)
	s.x.watch.spoke = time.Since(s.x.arrived)
	return err
}

// wake writes what has gathered.
func (s *sseWriter) wake() {
	x := s.x
	x.mu.Lock()
	defer x.mu.Unlock()
	s.awake = false
	if !x.dead && !x.watch.over && s.buf != nil {
		s.pass(time.Since(x.arrived))
	}
}

// flush writes what waits. A write that fails ends the request.
func (s *sseWriter) flush(now time.Duration) error {
	if s.err != nil {
		return errGone
	}
	x := s.x
	if !s.began {
		s.began = true
		x.phase, x.status = streaming, http.StatusOK
		x.writeHeaders()
		h := x.w.Header()
		h["Content-Type"] = mediaEvents
		h["Cache-Control"] = cacheNever
		h["X-Accel-Buffering"] = bufferingOff
	}
	err := x.write(s.buf.b, now)
	putBuffer(s.buf)
	s.buf = nil
	if err == nil {
		// Only the flush tells of a write that came too late.
		if err = x.flush(); errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
	}
	if x.r.ProtoMajor >= 2 {
		x.setWriteDeadline(time.Time{}) // or it would end the stream
	}
	if err != nil {
		s.err = err
		x.ctx.end(errGone)
		return errGone
	}
	return nil
}

// fail ends the stream with an error event and without [DONE].
func (s *sseWriter) fail(told *Error) {
	b := s.waiting()
	b.b = append(told.appendJSON(append(b.b, "data: "...)), "\n\n"...)
	s.flush(time.Since(s.x.arrived))
}

// comment keeps the connection busy.
func (s *sseWriter) comment(now time.Duration) {
	b := s.waiting()
	b.b = append(b.b, keepAlive...)
	s.flush(now)
}
