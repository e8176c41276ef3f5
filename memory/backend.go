package memory

import (
	"context"
	"time"

	"github.com/llmhttp/llmhttp"
)

// The models of a [Backend].
const (
	ModelChat       = "demo-chat"
	ModelEmbed      = "demo-embed"
	ModelImageLarge = "demo-image-large" // 1024x1024, 1024x1792, 1792x1024
	ModelImageSmall = "demo-image-small" // 256x256, 512x512, 1024x1024
)

// A Backend stands in for a model. It is deterministic: the same request gets
// the same answer, apart from the IDs of tool calls. The zero value is ready
// to use, and so is what [Echo] and [Scripted] return. Its fields must not be
// changed while it is in use; its methods are safe for concurrent use.
//
// # Chat
//
// The reply to a user is the text of the last message that is a user's, word
// for word, a token a chunk; if no user said anything it is a greeting. See
// [CountTokens] for what a token is. All choices say the same, in turns. Then
// there are these, which apply in this order:
//
//   - Tools. If a function must be called, or may be and the last message is
//     the user's, the reply is a call of the one that tool_choice names or
//     else of the first, with arguments valid under its schema. If the last
//     message is a tool's, the reply is a text with the results of the tools.
//     Tools that are no functions are ignored.
//   - The response format. A json_object has the text as its "reply"; under a
//     json_schema the reply is a valid value, whose strings say the text where
//     they may.
//   - Stop sequences. A text ends before the first of them. JSON that answers
//     a response format is a text too.
//   - The limit of tokens. Texts, JSON and the arguments of tool calls are cut
//     after as many tokens, as those of models are.
//
// Schemas that have no value, or none that is easily found, are refused. The
// text of all choices of a request has at most 32 MiB, and is cut like one
// with a limit if there were more.
//
// The usage it reports is exact. The prompt's tokens are those of the messages
// one by one: of their texts, and of the arguments of their tool calls. The
// tokens of the reply are those of the text, or of the arguments, times the
// number of choices.
//
// # Images
//
// An image is a PNG of overlapping discs over a gradient, which depend on the
// prompt and on its index; with the quality hd there are more of them. Images
// are not counted in tokens.
//
// # Embeddings
//
// A vector tells what words and parts of words an input has: texts are similar
// that have many in common. Vectors have length 1 and, unless the request says
// otherwise, 256 dimensions; they may have up to 3072. Token numbers are taken
// for words.
type Backend struct {
	// Delay is how long Chat waits before each chunk. If zero or negative, it
	// does not wait.
	Delay time.Duration

	// Script returns the steps of the reply to a request, which may be of any
	// model. If it is nil, or returns nil, the reply is as described above.
	Script func(req *llmhttp.ChatRequest) []Step
}

var (
	_ llmhttp.Backend        = (*Backend)(nil)
	_ llmhttp.ModelLister    = (*Backend)(nil)
	_ llmhttp.ImageGenerator = (*Backend)(nil)
	_ llmhttp.ImageSizer     = (*Backend)(nil)
	_ llmhttp.Embedder       = (*Backend)(nil)
)

// Echo returns a new Backend.
func Echo() *Backend { return &Backend{} }

// Chat implements [llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		s := &speaker{ctx: ctx, delay: b.Delay, yield: yield}
		if b.Script != nil {
			if steps := b.Script(req); steps != nil {
				s.perform(steps)
				return
			}
		}
		if req.Model != ModelChat {
			yield(nil, llmhttp.ModelNotFound(req.Model))
			return
		}
		r, err := replyTo(req)
		if err != nil {
			yield(nil, err)
			return
		}
		s.say(r)
	}
}

// ListModels implements [llmhttp.ModelLister].
func (b *Backend) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	created := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	var models []llmhttp.Model
	for _, id := range []string{ModelChat, ModelEmbed, ModelImageLarge, ModelImageSmall} {
		models = append(models, llmhttp.Model{ID: id, Created: created, OwnedBy: "llmhttp"})
	}
	return models, nil
}

// A speaker yields the chunks of one reply.
type speaker struct {
	ctx   context.Context
	delay time.Duration
	yield func(*llmhttp.ChatChunk, error) bool
}

// chunk yields c when it is time. It reports whether the reply goes on.
func (s *speaker) chunk(c *llmhttp.ChatChunk) bool {
	return s.wait(s.delay) && s.yield(c, nil)
}

// wait waits for d. If the context is done before, or is done already, it
// yields the cause and returns false.
func (s *speaker) wait(d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.ctx.Done():
		}
	}
	if s.ctx.Err() == nil {
		return true
	}
	s.yield(nil, context.Cause(s.ctx))
	return false
}
