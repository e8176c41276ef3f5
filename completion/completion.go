// Package completion serves the completion of prompts, which OpenAI calls legacy: editors, base models and
// benchmarks use it.
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Routes: completion.Routes()})
//
// The Handler then serves POST /v1/completions, if [llmhttp.As] finds a [Completer] in the Backend.
// Otherwise clients get a 404: a chat is not made of such a request, because its reply would be another one.
// A key needs the scope "completions", unless its Scopes are nil. Limits, usage, streams and Observers are
// those of a chat.
package completion

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/llm"
)

// Operation is the [llmhttp.Operation] of completing prompts without a chat.
const Operation llmhttp.Operation = "completions"

// Scope is the [llmhttp.Scope] of completing prompts without a chat.
const Scope llmhttp.Scope = "completions"

// A Completer is a [llmhttp.Backend] that completes prompts as they are, without a template for a chat.
type Completer interface {
	// Complete returns the text that follows each prompt of req. The rules of Chat of a
	// [llmhttp.Backend] hold, except that of a chunk only the Content of a Delta is sent, and
	// "logprobs" and other members in the Extra of a choice, in the form of the format, which differs
	// from that of chats. Choice j of prompt i has the index i*N + j. If Echo is set, the text of a
	// choice begins with its prompt; the Completer should then report the Usage, because the Handler
	// takes the text for the completion. What it does not support, such as Suffix, it refuses with an
	// [*llm.Error] of status 400. The Completer owns req. It is called concurrently.
	Complete(ctx context.Context, req *Request) llm.ChatStream
}

// Endpoint is what the routes of this package are made of, for Protocols with routes of their own: see
// [Serve]. It must not be changed.
var Endpoint = &llmhttp.Endpoint{
	Operation: Operation, Scope: Scope, Supported: llmhttp.Has[Completer], Output: llmhttp.OutputText,
}

func init() { endpoints.Register(string(Operation), Endpoint.Supported) }

// Routes returns new Routes for Options.Routes.
func Routes() []llmhttp.Route {
	return []llmhttp.Route{llmhttp.NewRoute("POST /v1/completions", Endpoint, serve)}
}

func serve(c *llmhttp.Call) error {
	req := new(Request)
	if err := wire.Decode(c, requestJSON, req, &req.Extra); err != nil {
		return err
	}
	return Serve(c, req, newEncoder(req))
}

// Serve serves a request that another wire format has, for the function of a route that a Protocol makes
// of [Endpoint] with [llmhttp.NewRoute]. That function reads the Body of c into a Request and checks it
// by [Request.Validate]; Serve, which then owns req, calls Reserve and Generate. The encoder gets what
// that of a chat gets. It must not be nil.
func Serve(c *llmhttp.Call, req *Request, encoder llmhttp.ChatEncoder) error {
	chat := req.asChat()
	err := c.Reserve(llmhttp.Estimate{
		Chat: chat, Attempts: req.attempts(), EchoBytes: req.echoBytes(),
		Tokens: func() int { return req.countTokens(wire.Estimator(c, req.Model)) },
		Params: llmhttp.RequestParams{Messages: req.Prompt.Len()},
	})
	if err != nil {
		return err
	}
	if n, ok := chat.TokenLimit(); ok {
		req.MaxTokens = &n
	}
	return c.Generate(encoder, func(ctx context.Context, b llmhttp.Backend) llm.ChatStream {
		model := req.Model // req is the Completer's then
		return explainChatModel(ctx, b, model, ability.Stream(Completer.Complete)(ctx, b, req))
	})
}

// explainChatModel returns s, which says of a model that it does not complete prompts, where s says that one
// does not exist which the Backend lists. Programs of the time of completions often ask for chat models.
func explainChatModel(ctx context.Context, b llmhttp.Backend, model string, s llm.ChatStream) llm.ChatStream {
	if s == nil {
		return nil
	}
	return func(yield func(*llm.ChatChunk, error) bool) {
		for chunk, err := range s {
			if e, ok := errors.AsType[*llm.Error](err); ok && e.Status == http.StatusNotFound && e.Code == codeNotFound {
				err = cmp.Or(chatModelError(ctx, b, model, err), err)
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

var codeNotFound = llm.ModelNotFound("").Code

// chatModelError returns the error for a model that is in the list of the Backend, or nil.
func chatModelError(ctx context.Context, b llmhttp.Backend, model string, cause error) error {
	lister, ok := llmhttp.As[llmhttp.ModelLister](ctx, b)
	if !ok {
		return nil
	}
	list, err := lister.ListModels(ctx)
	i := slices.IndexFunc(list, func(m llm.Model) bool { return m.ID == model })
	if err != nil || i < 0 {
		return nil
	}
	text := "The model '%s' does not complete prompts. Chat models are served at /v1/chat/completions."
	if slices.ContainsFunc(list[i].Capabilities, func(c llm.Capability) bool {
		return c == llm.CapabilityTools || c == llm.CapabilityVision || c == llm.CapabilityThinking
	}) {
		text = "'%s' is a chat model, which this endpoint does not serve. Use /v1/chat/completions."
	}
	e := llm.Errorf(http.StatusNotFound, codeNotFound, text, param.Echo(model)).WithParam("model")
	e.Err = cause
	return e
}

// asChat returns r as a chat. Each text is a message.
func (r *Request) asChat() *llm.ChatRequest {
	chat := &llm.ChatRequest{
		Model: r.Model, Stream: r.Stream, N: new(r.Choices()), MaxTokens: r.MaxTokens, Temperature: r.Temperature, TopP: r.TopP,
		PresencePenalty: r.PresencePenalty, FrequencyPenalty: r.FrequencyPenalty, Stop: r.Stop, Extra: r.Extra,
	}
	for _, text := range slices.Concat(r.Prompt.Texts, []string{r.Suffix}) {
		if text != "" {
			chat.Messages = append(chat.Messages, llm.Message{Role: llm.RoleUser, Content: llm.TextContent(text)})
		}
	}
	return chat
}

// attempts returns how many choices the model makes, of all prompts together.
func (r *Request) attempts() int {
	if r.BestOf == nil {
		return r.Choices()
	}
	return max(r.Choices(), *r.BestOf*r.Prompt.Len())
}

// echoBytes returns the most bytes of a prompt at the beginning of a choice.
func (r *Request) echoBytes() int {
	if !r.Echo {
		return 0
	}
	longest := 0
	for _, text := range r.Prompt.Texts {
		longest = max(longest, len(text))
	}
	for _, prompt := range r.Prompt.Tokens {
		longest = max(longest, tokens.MaxBytes(len(prompt)))
	}
	return longest
}

// countTokens counts the tokens of r. A model reads the suffix once with each prompt.
func (r *Request) countTokens(c tokens.Estimator) int {
	n := c.Label(r.Model) + c.Extra(r.Extra) + max(r.Prompt.Len(), 1)*c.Text(r.Suffix)
	for _, text := range r.Prompt.Texts {
		n += c.Text(text)
	}
	for _, prompt := range r.Prompt.Tokens {
		n += len(prompt)
	}
	for _, s := range r.Stop {
		n += c.Label(s)
	}
	if o := r.StreamOptions; o != nil {
		n += c.Extra(o.Extra)
	}
	return n
}
