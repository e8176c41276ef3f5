// Package agent provides a [Backend] that lets a model call tools on the server until it has an
// answer. To clients it is a model: in every format, whole and streamed.
//
//	tools := func(context.Context) ([]agent.Tool, error) { return []agent.Tool{forecast}, nil }
//	h := llmhttp.NewHandler(agent.New(model, tools, nil), keys, nil)
//
// A request runs in turns. In each, the model gets the messages so far and the tools: those of the
// agent and those that the client has sent. What the model says is sent on while it comes.
//
//   - Without calls of tools, the request ends: the model has answered.
//   - Calls of the agent's tools run in parallel, and the next turn has their results.
//   - A call of a tool of the client ends the request: the client gets it, and sends the result in the
//     next request. Calls of the agent's tools beside it are not carried out: the model repeats them
//     when it has the client's results.
//   - A call of a tool that does not exist gets a [Failure].
//
// Each call of the model is one of [llm.StartCall], so that it is priced by itself. The client gets the
// usage of all. If it leaves, the tools stop, and it has paid for what was used. Parameters such as
// max_tokens are those of each call. If the model reports no usage for some of its calls, the sum has
// those that are known.
//
// Clients see no calls of the agent's tools, only what Options.Progress and the function [Progress] tell of
// them as reasoning: the formats have items for the tools of vendors, which SDKs show under the names of those.
//
// An agent of another framework becomes a Backend with [Stream]. [Aside] keeps from agents what front
// ends ask beside the chat, such as titles.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/wrapped"
	"github.com/llmhttp/llmhttp/llm"
)

// defaultMaxTurns is the default of Options.MaxTurns.
const defaultMaxTurns = 8

// Options configure a [Backend]. A nil *Options is the zero value.
type Options struct {
	// MaxTurns is how often the model is called for a request. In the last turn it may not call the
	// tools of the agent, and answers with what it knows by then: see MaxCost. Zero means 8;
	// negative means no limit.
	MaxTurns int

	// MaxCost ends the tools of a request as MaxTurns does, as soon as the calls of the model have
	// cost as much: what [llm.Spent] returns, which is what the request is billed for them. The
	// last turn is not included, so that a request can cost more. After a call whose cost is not known,
	// because the model has no price or does not report its usage, the next turn is the last one. It
	// needs a Handler with the Price of [github.com/llmhttp/llmhttp.Options]; without that, requests
	// fail. Zero or negative means no limit.
	MaxCost llm.Money

	// Progress returns what the client is shown of a call of one of the agent's tools, as reasoning,
	// before the call runs. It must be safe for concurrent use. An empty text shows nothing. Nil
	// shows nothing. A tool shows how far it has come with the function [Progress].
	Progress func(call llm.ToolCall) string

	// Consent asks a person before some calls of the agent's tools run. Nil asks never.
	Consent *Consent

	// FinishWithin is how long a request may go on after its client has left: see [StreamOptions]. Zero or negative
	// means that its context ends at once.
	FinishWithin time.Duration
}

// A Model answers chats as a [github.com/llmhttp/llmhttp.Backend] does, which is one. Its methods must be
// safe for concurrent use.
type Model interface {
	Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream
}

// A modelLister is a Model that lists its models.
type modelLister interface {
	ListModels(ctx context.Context) ([]llm.Model, error)
}

// A Backend is an agent: a [github.com/llmhttp/llmhttp.Backend] that calls a model and tools. Create one
// with [New]. Its methods may be called concurrently. Of the model it has Chat and the list of models, and
// hides everything else: see [github.com/llmhttp/llmhttp.As].
type Backend struct {
	model Model
	tools func(ctx context.Context) ([]Tool, error)
	opts  Options
	asked Sessions[askedConsent]
}

// New returns a Backend that calls model. tools returns the tools for a request: it is called once
// for each, with its context, may be called concurrently, and its error ends the request. opts may
// be nil.
//
// New panics if model or tools is nil, or if Options.Consent has no Question.
func New(model Model, tools func(ctx context.Context) ([]Tool, error), opts *Options) *Backend {
	if option.IsNil(model) || tools == nil {
		panic("agent: New without a model or tools")
	}
	b := &Backend{model: model, tools: tools}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Consent != nil && b.opts.Consent.Question == nil {
		panic("agent: New with an Options.Consent without a Question")
	}
	b.opts.MaxTurns = option.Bound(b.opts.MaxTurns, defaultMaxTurns)
	return b
}

// ListModels returns the models that the Model lists, or the Backend that it wraps.
func (b *Backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	return listModels(ctx, b.model)
}

func listModels(ctx context.Context, m Model) ([]llm.Model, error) {
	lister, ok := wrapped.Find[modelLister](any(m), func(v any) (any, bool) { return wrapped.NextBackend(ctx, v) })
	if !ok {
		return nil, fmt.Errorf("agent: the Model lists no models: %w", errors.ErrUnsupported)
	}
	return lister.ListModels(ctx)
}

// Chat runs a request. It refuses requests for several choices, and those with a tool that has the
// name of one of the agent's.
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	if req.Choices() > 1 {
		return llm.Fail(llm.Errorf(http.StatusBadRequest, "unsupported_value", "There is one answer.").WithParam("n"))
	}
	return Stream(ctx, &StreamOptions{FinishWithin: b.opts.FinishWithin}, func(ctx context.Context, w *Writer) error {
		tools, err := b.tools(ctx)
		if err != nil {
			return err
		}
		r, err := newRun(b, req, tools, w)
		if err != nil {
			return err
		}
		return r.run(ctx)
	})
}
