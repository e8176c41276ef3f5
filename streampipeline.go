package llmhttp

import (
	"errors"

	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// A pipeline makes the reply to one request from the chunks of the Backend. That of a stream is
// sent as it is made.
type pipeline interface {
	exchange.Source

	// appendEnd appends the end of a complete reply, and what comes before it unless that was
	// sent. extra has members beside the usage, or nil.
	appendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error)
}

// A replyEncoder encodes the reply to one request of a streaming operation.
type replyEncoder[Chunk any] interface {
	Framing() Framing
	AppendChunk(b []byte, c *Chunk) ([]byte, error)
	AppendEnd(b []byte, u *llm.Usage) ([]byte, error)
	AppendFailure(b []byte, e *llm.Error) []byte
}

// chunkFacts are what a chunk of the reply to a streaming operation tells about itself.
type chunkFacts struct {
	usage       *llm.Usage // of the request so far; nil if it is not known
	audioMillis int64      // of the recording so far; zero if it is not known
	images      int        // that are complete with the chunk
	size        int        // in bytes, about
	hasOutput   bool       // it has a part of what the client asked for
	text        string     // of the output, if it is one
	audio       []byte     // the same; valid until the chunk is received
}

// A streamPipeline is the pipeline of a streaming operation. Its methods are called as those of a
// chatPipeline.
type streamPipeline[Chunk any] struct {
	cred     *credential // is removed from the errors that the client gets
	encoder  replyEncoder[Chunk]
	maxReply int64           // bounds size
	size     int             // approximate size of the chunks so far, in bytes
	asked    *Units          // what the request is expected to use besides tokens; nil if nothing
	output   *tokens.Counter // counts the texts

	began     bool            // a chunk had output
	units     *Units          // what the reply used besides tokens; nil if nothing
	estimated bool            // the audio of units is an estimate
	images    int             // that are complete
	told      int64           // the audio that the Backend has told, in milliseconds
	audio     audioMeter      // measures the audio so far
	body      exchange.Buffer // of a whole reply: what the encoder has appended so far
}

var errNoOutput = errors.New("llmhttp: the stream ended without a part of the reply")

// receive adds to the reply what a chunk has. If the reply is a stream, it is appended to out.
func (p *streamPipeline[Chunk]) receive(c *Chunk, f chunkFacts, out *exchange.Buffer) error {
	if p.size += f.size; int64(p.size) > p.maxReply {
		return errReplyTooLarge(p.maxReply)
	}
	if f.hasOutput && !p.began {
		p.began, p.units = true, new(Units)
		if p.asked != nil {
			*p.units = *p.asked
			p.units.AudioMillis = 0 // which is an estimate
		}
	}
	p.output.AddText(f.text)
	p.images += f.images
	p.countAudio(f)
	if out == nil { // nothing of a whole reply is sent yet
		out = &p.body
	}
	b, err := p.encoder.AppendChunk(out.B, c)
	if err == nil {
		out.B = b
	}
	return err
}

// countAudio counts the audio of a chunk: what the Backend tells, or else what was sent.
func (p *streamPipeline[Chunk]) countAudio(f chunkFacts) {
	p.told = max(p.told, f.audioMillis)
	p.audio.add(f.audio)
	if !p.began {
		return
	}
	p.units.AudioMillis, p.estimated = p.told, false
	if p.told == 0 {
		p.units.AudioMillis, p.estimated = p.audio.millis()
	}
}

// complete ends a reply that is complete, of which the images are known, also if they are not as many
// as the client has asked for.
func (p *streamPipeline[Chunk]) complete() error {
	if !p.began {
		return errNoOutput
	}
	if p.units.Images > 0 {
		p.units.Images = int64(p.images)
	}
	return nil
}

// appendEnd implements [pipeline].
func (p *streamPipeline[Chunk]) appendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	return p.encoder.AppendEnd(append(b, p.body.B...), u)
}

// AppendStart implements [exchange.Source].
func (p *streamPipeline[Chunk]) AppendStart(b []byte) []byte { return b }

// HasStarted implements [exchange.Source].
func (p *streamPipeline[Chunk]) HasStarted() bool { return true }

// AppendFailure implements [exchange.Source].
func (p *streamPipeline[Chunk]) AppendFailure(b []byte, err error) []byte {
	return p.encoder.AppendFailure(b, p.cred.clientError(err))
}
