// Completions of prompts.

package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// defaultCompletion is the limit on tokens of a request that has none, as in OpenAI's API.
const defaultCompletion = 16

// completed is the text of the choices of one prompt.
type completed struct {
	tokens []string // with those of the prompt, if the client asked for them
	echoed int      // how many of them are the prompt's
	finish llm.FinishReason
	stop   string // the stop sequence, if one ended the text
}

// Complete implements [completion.Completer].
func (b *Backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		if req.Model != ModelComplete {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		s := &sender{modelreply.Sender[*llm.ChatChunk]{Ctx: ctx, Delay: b.Delay, Yield: yield}}
		usage, n := new(llm.Usage), req.Choices()/req.Prompt.Len()
		for i := range req.Prompt.Len() {
			prompt := promptText(&req.Prompt, i)
			c := complete(req, prompt)
			usage.PromptTokens += CountTokens(req.Model, prompt) + CountTokens(req.Model, req.Suffix)
			usage.CompletionTokens += n * (len(c.tokens) - c.echoed)
			for j := range n {
				if !s.sendCompletion(c, i*n+j, req.Logprobs) {
					return
				}
			}
		}
		usage.TotalTokens = usage.PromptTokens + usage.CompletionTokens
		s.Send(&llm.ChatChunk{Usage: usage})
	}
}

// promptText returns the text of prompt i.
func promptText(p *completion.Prompt, i int) string {
	if p.Tokens != nil {
		return strings.Trim(fmt.Sprint(p.Tokens[i]), "[]")
	}
	return p.Texts[i]
}

func complete(req *completion.Request, prompt string) completed {
	c := completed{finish: llm.FinishStop}
	text := " " + prompt
	if req.Suffix != "" {
		text, _, _ = strings.Cut(text, req.Suffix)
	}
	text, c.stop = modelreply.CutAtStop(text, req.Stop)
	limit, ok := req.TokenLimit()
	if !ok {
		limit = defaultCompletion
	}
	size := maxReply / req.Choices()
	head, _ := cutTokens(text, limit, size)
	if len(head) < len(text) {
		c.finish, c.stop = llm.FinishLength, ""
	}
	if req.Echo {
		echoed, _ := cutTokens(prompt, size, size-len(head))
		c.tokens = tokensIn(echoed)
		c.echoed = len(c.tokens)
	}
	c.tokens = append(c.tokens, tokensIn(head)...)
	return c
}

func tokensIn(text string) (tokens []string) {
	for text != "" {
		n := tokenLen(text)
		tokens, text = append(tokens, text[:n]), text[n:]
	}
	return tokens
}

// sendCompletion sends the tokens of a choice and its end. logprobs is the number of log
// probabilities of each token; nil means none.
func (s *sender) sendCompletion(c completed, index int, logprobs *int) bool {
	offset := 0
	for _, token := range c.tokens {
		choice := llm.ChunkChoice{Index: index, Delta: llm.Delta{Content: token}}
		if logprobs != nil {
			choice.Extra = llm.Extra{"logprobs": tokenLogprobs(token, offset, *logprobs > 0)}
		}
		if offset += utf8.RuneCountInString(token); !s.Send(newChunk(choice)) {
			return false
		}
	}
	return s.Send(newChunk(llm.ChunkChoice{Index: index, FinishReason: c.finish, StopSequence: c.stop}))
}

// tokenLogprobs returns the log probabilities of a token, which begins after offset characters of the
// text. Each token is certain, so that there are no others.
func tokenLogprobs(token string, offset int, top bool) json.RawMessage {
	type logprobs struct {
		Tokens     []string             `json:"tokens"`
		Logprobs   []float64            `json:"token_logprobs"`
		Top        []map[string]float64 `json:"top_logprobs"`
		TextOffset []int                `json:"text_offset"`
	}
	l := logprobs{Tokens: []string{token}, Logprobs: []float64{0}, TextOffset: []int{offset}}
	if top {
		l.Top = []map[string]float64{{token: 0}}
	}
	b, _ := llmhttp.AppendJSON(nil, l) // which has no value that cannot be encoded
	return b
}
