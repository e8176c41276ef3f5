// A reply of a Call that comes in pieces.

package llmhttp

import (
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// A ReplyStream is the reply of a [Call] whose Backend yields it in pieces: Call.Stream makes it, Append
// adds the pieces within Ask, and End settles the request and ends the reply after that. A reply whose
// Framing is Whole is sent by End. See "Endpoints of hosts" in the package documentation.
type ReplyStream struct {
	c       *Call
	framing Framing
	outside bool // Append was called outside of Ask; guarded by the chunkGate of the request
	pieces  replyPieces
}

// Progress is what a piece of a reply tells. Usage, Units and Estimated are those of the request so far.
// See "Endpoints of hosts" in the package documentation.
type Progress struct {
	Usage *llm.Usage // nil if the piece tells nothing of it

	// Units are what the reply has besides tokens. Nil means those before; before any, what was
	// reserved, without audio, of which a reply that fails may have had less. They count from the first
	// output on. Negative numbers count as zero.
	Units     *Units
	Estimated bool // the AudioMillis of Units are an estimate

	// ContentType is the media type of the reply if it is another than that of the Framing. It counts if a part of the reply
	// was not sent yet. Empty keeps the type. The reply's header has it as it is.
	ContentType string

	Text      string // of the output that the piece has, whose tokens are estimated if the Operation has OutputText
	HasOutput bool   // the piece has a part of what the client asked for. A reply without any is an error
	Size      int    // of the piece in bytes, about: a reply is refused above Options.Bounds.MaxReply
}

var (
	errStreamOrder   = errors.New("llmhttp: Stream of a Call was called before Reserve, in or after Ask, or twice")
	errAppendOrder   = errors.New("llmhttp: Append of a ReplyStream was called outside of Ask")
	errStreamNoEnd   = errors.New("llmhttp: the function of a route has neither called End of its ReplyStream nor returned an error")
	errReplyInStream = errors.New("llmhttp: Reply of a Call was called although it has a ReplyStream")
	errNoOutput      = errors.New("llmhttp: the stream ended without a part of the reply")
)

// Stream prepares a reply that comes in pieces. It is called once, after Reserve and before Ask.
// appendFailure appends what tells clients that a stream has failed, or nothing; nil is like the latter.
func (c *Call) Stream(f Framing, appendFailure func(b []byte, e *llm.Error) []byte) *ReplyStream {
	q := c.q
	s := &ReplyStream{c: c, framing: f, pieces: replyPieces{
		cred: &q.cred, maxReply: q.h.opts.Bounds.MaxReply, output: &q.chat.order.Output, appendFailure: appendFailure,
	}}
	switch {
	case c.err != nil || c.stage != callReserved || c.stream != nil:
		_ = c.keep(errStreamOrder)
		return s
	case f.ContentType == "":
		_ = c.keep(errNoContentType)
		return s
	}
	c.stream = s
	q.chunks.err = errStreamOver // until Ask
	s.pieces.output.KeepText = q.h.opts.Estimates.TextTokens != nil
	if asked := q.ledger.expected.units; asked != nil {
		s.pieces.units = *asked
		s.pieces.units.AudioMillis = 0
	}
	q.beginFraming(f, &s.pieces)
	return s
}

// Append adds a piece of the reply, which appendPiece appends to b. If it returns an error, the Backend
// must stop, and the function of Ask return. When it returns, the piece was written, or is queued for a
// write with the next ones or for End. It may be called on any goroutine, but not concurrently.
// [AppendStream] calls it for each chunk of a Backend's stream.
func (s *ReplyStream) Append(p Progress, appendPiece func(b []byte) ([]byte, error)) error {
	g := &s.c.q.chunks
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == errStreamOver || s.c.stream != s {
		s.outside = true
		return errAppendOrder
	}
	if s.c.q.admitLocked(p.Usage, nil, func() error { return s.receive(&p, appendPiece) }) {
		return nil
	}
	return g.err
}

// AppendStream appends each chunk of a stream to s: progress tells what a chunk has, and appendChunk
// appends it to b. A chunk is valid until they have returned. AppendStream is called within Ask, with
// the stream of the Backend, and returns why that has ended: nil if it is complete. A nil stream is an
// error, and so is, for Ask, one without a chunk. See "Endpoints of hosts" in the package documentation.
func AppendStream[Chunk any](
	s *ReplyStream,
	stream iter.Seq2[*Chunk, error],
	progress func(c *Chunk) Progress,
	appendChunk func(b []byte, c *Chunk) ([]byte, error),
) error {
	if stream == nil {
		return callctx.ErrNilStream
	}
	q, g := s.c.q, &s.c.q.chunks
	var current *Chunk
	var p Progress
	over := false // guarded by g, as those before
	appendCurrent := func(b []byte) ([]byte, error) { return appendChunk(b, current) }
	receive := func() error {
		if current == nil { // the Backend is alive
			return q.client.Receive(func(time.Time, *exchange.Buffer) error { return nil })
		}
		return s.receive(&p, appendCurrent)
	}
	stream(func(c *Chunk, err error) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if over {
			q.log.warn(misuseYieldAfterReturn)
			return false
		}
		if current, p = c, (Progress{}); c != nil && err == nil {
			p = progress(c)
		}
		return q.admitLocked(p.Usage, err, receive)
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	over = true
	return g.err
}

// receive adds a piece to the reply. It is called with the chunkGate locked.
func (s *ReplyStream) receive(p *Progress, appendPiece func(b []byte) ([]byte, error)) error {
	q, pieces := s.c.q, &s.pieces
	stats, arrived := &q.chunks.stats, q.arrived
	if p.ContentType != "" && p.ContentType != s.framing.ContentType {
		s.framing.ContentType = p.ContentType
		q.client.SetContentType(p.ContentType)
	}
	err := q.client.Receive(func(now time.Time, out *exchange.Buffer) error {
		stats.add(p.HasOutput, now.Sub(arrived))
		return pieces.add(p, out, appendPiece)
	})
	if pieces.began {
		q.backend.units, q.backend.estimated = &pieces.units, pieces.estimated
	}
	return err
}

// complete returns why the reply is not complete after Ask has called its function, or nil.
func (s *ReplyStream) complete() error {
	if err := s.c.q.closeChunks(); err != nil {
		return err
	}
	if !s.pieces.began {
		return errNoOutput
	}
	return nil
}

// End settles the request, ends a complete reply with what appendEnd appends, which may call Usage of
// the Call, and sends what was not sent before. It is called once, after Ask has returned nil. An error
// of appendEnd fails the request.
func (s *ReplyStream) End(appendEnd func(b []byte) ([]byte, error)) error {
	c := s.c
	switch {
	case c.stage == callReplied:
		return c.keep(errReplyTwice)
	case c.err != nil || c.stage != callAsked || c.stream != s:
		return c.keep(errReplyUnasked)
	}
	if err := c.checkOrder(); err != nil {
		return c.keep(err)
	}
	q := c.q
	q.settle()
	c.stage = callReplied
	pieces := &s.pieces
	var err error
	if s.framing.Whole {
		err = q.replyAs(http.StatusOK, s.framing.ContentType, func(b []byte) ([]byte, error) {
			return appendBy(append(b, pieces.body.B...), appendEnd)
		})
	} else {
		err = q.client.EndStream(func(out *exchange.Buffer) (err error) {
			out.B, err = appendBy(out.B, appendEnd)
			return err
		}, q.ledger.slots.releaser())
	}
	if err != nil {
		return c.keep(err)
	}
	return nil
}

// checkOrder returns an error if Append was called outside of Ask.
func (s *ReplyStream) checkOrder() error {
	s.c.q.chunks.mu.Lock()
	defer s.c.q.chunks.mu.Unlock()
	if s.outside {
		return errAppendOrder
	}
	return nil
}

// replyPieces makes the bytes of a ReplyStream, and counts what it has. A stream is sent as it is made.
type replyPieces struct {
	cred          *credential // is removed from the errors that the client gets
	maxReply      int64       // bounds size
	output        *tokens.Counter
	appendFailure func(b []byte, e *llm.Error) []byte // may be nil

	began     bool            // a piece had output
	size      int             // of the pieces so far, in bytes, about
	units     Units           // so far, besides tokens
	estimated bool            // the audio of units is an estimate
	body      exchange.Buffer // of a whole reply: what was appended so far
}

// add adds a piece. If the reply is a stream, it is appended to out.
func (r *replyPieces) add(p *Progress, out *exchange.Buffer, appendPiece func(b []byte) ([]byte, error)) (err error) {
	if r.size += p.Size; int64(r.size) > r.maxReply {
		return invalid.ReplyTooLarge(r.maxReply)
	}
	r.output.AddText(p.Text)
	r.began = r.began || p.HasOutput
	if r.began && p.Units != nil {
		r.units, r.estimated = *p.Units, p.Estimated
		for _, n := range r.units.numbers() {
			*n = max(*n, 0)
		}
	}
	if out == nil { // nothing of a whole reply is sent yet
		out = &r.body
	}
	out.B, err = appendBy(out.B, appendPiece)
	return err
}

// AppendStart implements [exchange.Source].
func (r *replyPieces) AppendStart(b []byte) []byte { return b }

// HasStarted implements [exchange.Source].
func (r *replyPieces) HasStarted() bool { return true }

// AppendFailure implements [exchange.Source].
func (r *replyPieces) AppendFailure(b []byte, err error) []byte {
	if r.appendFailure == nil {
		return b
	}
	e := r.cred.clientError(err)
	b, _ = appendBy(b, func(b []byte) ([]byte, error) { return r.appendFailure(b, e), nil })
	return b
}

// appendBy appends to b what f appends. b is memory that is used again, so that what f returns becomes a
// part of it only if it is the same memory: that of a host may be its own.
func appendBy(b []byte, f func(b []byte) ([]byte, error)) ([]byte, error) {
	free := b[len(b):]
	piece, err := f(free)
	if err != nil {
		return b, err
	}
	if len(piece) > 0 && cap(free) > 0 && &piece[0] == &free[:1][0] {
		return b[:len(b)+len(piece)], nil
	}
	return append(b, piece...), nil
}
