// Options, routes and headers.

package responses

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsestore"
)

// Options configure the protocol. The zero value is ready to use.
type Options struct {
	// Store stores responses. If nil, nothing is stored: replies have "store": false, and a
	// previous_response_id is refused.
	Store responsestore.Store

	// KeepFor is how long responses are stored. Zero means 30 days; negative means
	// no limit. Continuing an old response does not make it younger: a
	// conversation whose first response has expired cannot be continued by ID.
	KeepFor time.Duration

	// RequireStore makes a request fail with a 503 if its reply cannot be stored
	// within a second, although the model has replied and the usage is recorded. If
	// false, the client gets the reply with "store": false in its last event: it
	// cannot be continued by ID. The Handler logs that at Warn, and the
	// RequestSummary has it as SaveErr.
	RequireStore bool

	// Secret is the key with which encrypted_content is encrypted, of any length
	// from 16 bytes. Processes that serve the same clients need the same one. If
	// nil, each process has its own: it ignores reasoning that others have encrypted, and refuses
	// summaries, so that conversations that were compacted end with the process. That is also true of
	// stored ones.
	Secret []byte

	// CodexInstructions are the instructions with which Codex begins each conversation. If they are not
	// empty, Codex gets a list of the models with their context windows, efforts and kinds of input: see
	// docs/clients.md. Its list has the instructions of each model, which take the place of Codex's
	// own, so that it cannot be made without. Those of Codex are in its repository:
	// codex-rs/models-manager/prompt.md.
	CodexInstructions string

	// CompactPrompt is the last message, of the user, of a request to the Backend for the summary of
	// a conversation. If empty, it is [DefaultCompactPrompt].
	CompactPrompt string
}

const (
	defaultKeepFor = 30 * 24 * time.Hour
	minSecret      = 16
)

// New returns the protocol. It keeps a copy of opts; nil means the zero Options. It
// panics if the Secret is not nil and shorter than 16 bytes, or if the Store holds a nil pointer.
func New(opts *Options) llmhttp.Protocol {
	if err := option.CheckInterfaces(opts); err != nil {
		panic("responses: " + err.Error())
	}
	p := &protocol{Protocol: llmhttp.ChatCompletions()}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.KeepFor == 0 {
		p.opts.KeepFor = defaultKeepFor
	}
	p.sealer = newSealer(p.opts.Secret)
	return p
}

// A protocol uses the keys, headers and errors of chat completions.
type protocol struct {
	llmhttp.Protocol
	opts   Options
	sealer *sealer
}

func (*protocol) Name() string { return "responses" }

func (p *protocol) Routes() []llmhttp.Route {
	routes := []llmhttp.Route{
		{Pattern: "POST /v1/responses", Bind: llmhttp.BindChat(p.decodeChat)},
		{Pattern: "GET /v1/responses", Match: isUpgrade, Bind: bindQuery(p.refuseUpgrade)},
		{Pattern: "POST /v1/responses/input_tokens", Bind: llmhttp.BindCountTokens(p.decodeCountTokens)},
		{Pattern: "POST /v1/responses/compact", Bind: llmhttp.BindChat(p.decodeCompact)},
		{Pattern: "GET /v1/responses/{id}", Bind: bindQuery(p.retrieve)},
		{Pattern: "DELETE /v1/responses/{id}", Bind: bindQuery(p.delete)},
		{Pattern: "GET /v1/responses/{id}/input_items", Bind: bindQuery(p.listInput)},
		{Pattern: "POST /v1/responses/{id}/cancel", Bind: bindQuery(p.cancel)},
	}
	if p.opts.CodexInstructions != "" {
		routes = append(routes, llmhttp.Route{Pattern: "GET /v1/models", Match: isCodexList, Bind: llmhttp.BindModels(p.decodeListModels)})
	}
	return routes
}

// bindQuery binds a route to a function that returns a reply to be encoded as JSON.
func bindQuery(serve func(ctx context.Context, r *http.Request) (any, error)) llmhttp.Binding {
	return llmhttp.BindQuery(llmhttp.ScopeChat, func(ctx context.Context, r *http.Request, _ []byte) (*llmhttp.QueryReply, error) {
		v, err := serve(ctx, r)
		if err != nil {
			return nil, err
		}
		body, err := llmhttp.AppendJSON(nil, v)
		return &llmhttp.QueryReply{Body: body}, err
	})
}

// decodeChat decodes a request for a response.
func (p *protocol) decodeChat(ctx context.Context, _ *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	return p.decodeResponse(ctx, body, false)
}

// decodeResponse decodes a request for a response, or with standalone for POST /v1/responses/compact.
func (p *protocol) decodeResponse(ctx context.Context, body []byte, standalone bool) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req, err := p.decodeRequest(ctx, body, standalone, func(known *llm.ChatRequest) error {
		if known.Model == "" {
			return invalid.Missing("model")
		}
		return llmhttp.ReserveChat(ctx, known)
	})
	if err != nil {
		return nil, nil, err
	}
	if err := req.chat.Validate(); err != nil {
		return nil, nil, chatError(err)
	}
	e, err := newEncoder(p, req)
	if err != nil {
		return nil, nil, err
	}
	if id := e.conversation(); id != "" {
		llmhttp.SetConversation(ctx, id)
	}
	return req.chat, e, nil
}

// decodeCountTokens decodes POST /v1/responses/input_tokens, whose request has the
// members of a request for a response, all of them optional.
func (p *protocol) decodeCountTokens(
	ctx context.Context,
	_ *http.Request,
	body []byte,
) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
	reserve := func(known *llm.ChatRequest) error { return llmhttp.ReserveChat(ctx, known) }
	req, err := p.decodeRequest(ctx, body, false, reserve)
	if err != nil {
		return nil, nil, err
	}
	if err := req.checkParams(); err != nil {
		return nil, nil, err
	}
	return req.chat, appendTokenCount, nil
}

func appendTokenCount(b []byte, tokens int) ([]byte, error) {
	b = append(b, `{"object":"response.input_tokens","input_tokens":`...)
	return append(strconv.AppendInt(b, int64(tokens), 10), '}'), nil
}

// isUpgrade reports whether r asks for another protocol, such as WebSocket.
func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// refuseUpgrade answers clients that try a WebSocket first. Codex falls back to
// HTTP at once when it gets a 426, and tries again after any other status.
func (*protocol) refuseUpgrade(_ context.Context, r *http.Request) (any, error) {
	_, path, _ := strings.Cut(r.Pattern, " ") // with the prefix of the Handler
	return nil, llm.Errorf(http.StatusUpgradeRequired, "", "WebSockets are not supported. Use POST %s.", path)
}
