// Backend, which repeats the user's text.

package memory

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// ModelChat is the only model of a [Backend] without a Script, which may answer for others.
const ModelChat = "demo-chat"

// A Backend is a [llmhttp.Backend] that takes the place of a model. The zero value is ready to
// use. The fields must not be changed while the Backend is in use. Its methods are safe for
// concurrent use.
//
// The reply is the text of the last user message, unchanged, or a greeting if there is none, a
// chunk for each word. All choices have the same reply. Stop sequences and the token limit of the
// request apply, and a word counts as a token. Other parameters do not apply. A Backend that calls
// tools, makes values for JSON schemas, and computes embeddings is in package llmfake/simulator.
type Backend struct {
	// Delay is the time that Chat waits before each chunk. Zero or a negative
	// value means no delay.
	Delay time.Duration

	// Script returns the steps of the reply to a request for any model. If Script is nil or returns
	// nil, Chat replies as described above.
	Script func(req *llm.ChatRequest) []Step
}

var (
	_ llmhttp.Backend     = (*Backend)(nil)
	_ llmhttp.ModelLister = (*Backend)(nil)
)

// Echo returns a new Backend with zero fields. It serves one model, [ModelChat], which is demo-chat:
// requests for others get a 404 with the code model_not_found.
func Echo() *Backend { return &Backend{} }

// Chat implements [llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		s := &sender{ctx, b.Delay, yield}
		if b.Script != nil {
			if steps := b.Script(req); steps != nil {
				s.run(steps)
				return
			}
		}
		if req.Model != ModelChat {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		s.echo(req)
	}
}

// ListModels implements [llmhttp.ModelLister].
func (b *Backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	created := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	return []llm.Model{{
		ID: ModelChat, Created: created, OwnedBy: "llmhttp", DisplayName: "Demo chat",
		Capabilities: []llm.Capability{}, // none besides text
	}}, nil
}

// A sender yields the chunks of one reply.
type sender struct {
	ctx   context.Context
	delay time.Duration // before each chunk
	yield func(*llm.ChatChunk, error) bool
}

// send yields c after the delay. It reports whether the reply continues.
func (s *sender) send(c *llm.ChatChunk) bool { return s.wait(s.delay) && s.yield(c, nil) }

// wait waits for d and returns true. If the context is done first, it yields the cause and returns
// false.
func (s *sender) wait(d time.Duration) bool {
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

// greeting is the reply to a request whose user messages have no text.
const greeting = "Hello! How can I help you today?"

// echo sends the reply to req.
func (s *sender) echo(req *llm.ChatRequest) {
	text, prompt := greeting, 0
	for i := range req.Messages {
		m := &req.Messages[i]
		content := m.Content.Text()
		prompt += len(words(content))
		if m.Role == llm.RoleUser && content != "" {
			text = content
		}
	}
	end := llm.ChunkChoice{FinishReason: llm.FinishStop}
	text, end.StopSequence = cutAtStop(text, req.Stop)
	tokens := words(text)
	limit, ok := req.TokenLimit()
	if !ok {
		limit = math.MaxInt
	}
	if len(tokens) > limit {
		tokens = tokens[:limit]
		end.FinishReason, end.StopSequence = llm.FinishLength, ""
	}
	choices := max(req.Choices(), 1)
	for _, token := range tokens {
		for i := range choices {
			if !s.send(newChunk(llm.ChunkChoice{Index: i, Delta: llm.Delta{Content: token}})) {
				return
			}
		}
	}
	last := &llm.ChatChunk{Usage: &llm.Usage{PromptTokens: prompt, CompletionTokens: len(tokens) * choices}}
	last.Usage.TotalTokens = last.Usage.PromptTokens + last.Usage.CompletionTokens
	for i := range choices {
		end.Index = i
		last.Choices = append(last.Choices, end)
	}
	s.send(last)
}

// words splits text into words, each with the white space before it.
func words(text string) []string {
	var list []string
	start, inWord := 0, false
	for i, c := range text {
		isSpace := c == ' ' || c == '\n' || c == '\t'
		if inWord && isSpace {
			list = append(list, text[start:i])
			start, inWord = i, false
		}
		inWord = inWord || !isSpace
	}
	if start < len(text) {
		list = append(list, text[start:])
	}
	return list
}

// cutAtStop returns the part of text before the first stop sequence, and that sequence. Without one
// it returns text and "". Empty sequences stop nothing.
func cutAtStop(text string, sequences []string) (head, stop string) {
	for _, s := range sequences {
		if i := strings.Index(text, s); i >= 0 && s != "" {
			text, stop = text[:i], s
		}
	}
	return text, stop
}
