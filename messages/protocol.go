// Options, routes, keys and headers.

package messages

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// Options configure the protocol. The zero value is ready to use.
type Options struct {
	// Names are the names that clients use for the models, such as claude-haiku-4-5, for which agents
	// ask, or claude-demo-chat: Claude Code offers no model whose name contains neither claude nor
	// anthropic. Replies and errors have the name that the client used; keys, limits and records that of
	// the model. If nil, the names are those of the models.
	Names Names

	// InferenceGeos are the places, such as "us", of which the host promises that models run nowhere else
	// for a request that names one in inference_geo. The Backend gets the name in Extra, as inference_geo. A
	// request that names another place gets a 400, except for "global", which is any place. If empty, no
	// place is promised. A message has the place in its usage.
	InferenceGeos []string

	// Anthropic keeps what chat completions have no form for, so that a Backend of package upstream/anthropic sends it as the
	// client did: tools that Anthropic runs or defines, the blocks of their calls and results, the order of blocks,
	// citations, documents with their title, context and citations, thinking without a signature and as it was configured,
	// context_management, container, mcp_servers, speed, diagnostics, compaction, and the header Anthropic-Beta. Package
	// upstream leaves all of this out, and refuses a chat that would lose all of its tools. Other Backends have to do the
	// same, so it must not be set for a Backend that does not know the member "anthropic". The host pays for the tools
	// and servers that clients use. Package textfilter filters all strings of this, as texts of the kind Other; another filter
	// has to look for them in Extra itself.
	Anthropic bool
}

// New returns the protocol. It copies opts; nil means the zero Options. It panics if Options.Names are invalid:
// check names that come from a file by [Names.Validate].
func New(opts *Options) llmhttp.Protocol {
	p := &protocol{}
	if opts != nil {
		p.opts = *opts
	}
	if err := p.opts.Names.Validate(); err != nil {
		panic(err.Error())
	}
	p.names = newNameTable(p.opts.Names)
	return p
}

type protocol struct {
	opts  Options
	names nameTable // of opts.Names, which the host may change
}

func (*protocol) Name() string { return "messages" }

func (p *protocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{
		{Pattern: "POST /v1/messages", Bind: llmhttp.BindChat(p.decodeChat)},
		{Pattern: "POST /v1/messages/count_tokens", Bind: llmhttp.BindCountTokens(p.decodeCountTokens)},
		{Pattern: "GET /v1/models", Match: hasVersionHeader, Bind: llmhttp.BindModels(p.decodeListModels)},
		{Pattern: "GET /v1/models/{id...}", Match: hasVersionHeader, Bind: llmhttp.BindModels(p.decodeGetModel)},
	}
}

// hasVersionHeader reports whether r is from a client of this API. All of its clients
// send the header. Clients of OpenAI's API, which has the same paths, do not.
func hasVersionHeader(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// Secret prefers X-Api-Key to a bearer token. Claude Code sends both headers if it has two
// keys. If there are several X-Api-Key the result is not a well-formed key, so that the
// request is refused, as with llmhttp.BearerSecret.
func (*protocol) Secret(r *http.Request) string {
	if keys := strings.Join(r.Header["X-Api-Key"], ", "); keys != "" {
		return keys
	}
	return llmhttp.BearerSecret(r)
}

func (*protocol) SetHeaders(h http.Header, info llmhttp.ReplyInfo) {
	h.Set("Request-Id", info.RequestID)
	setLimitHeaders(h, "requests", info.Requests)
	setLimitHeaders(h, "tokens", info.Tokens)
}

func setLimitHeaders(h http.Header, kind string, l *llmhttp.LimitInfo) {
	if l == nil {
		return
	}
	reset := time.Now().Add(l.ResetAfter + time.Second - 1).Truncate(time.Second)
	prefix := "Anthropic-Ratelimit-" + kind
	h.Set(prefix+"-Limit", strconv.FormatInt(l.Limit, 10))
	h.Set(prefix+"-Remaining", strconv.FormatInt(l.Remaining, 10))
	h.Set(prefix+"-Reset", reset.UTC().Format(time.RFC3339))
}

func (p *protocol) decodeChat(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req, reply, err := p.decodeRequest(ctx, r, body, true)
	if err != nil {
		return nil, nil, err
	}
	e := &encoder{ctx: ctx, params: reply, model: p.useModel(ctx, req)}
	e.blocks.whole = !req.Stream
	return req, e, nil
}

// decodeCountTokens decodes POST /v1/messages/count_tokens.
func (p *protocol) decodeCountTokens(
	ctx context.Context,
	r *http.Request,
	body []byte,
) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
	req, _, err := p.decodeRequest(ctx, r, body, false)
	if err != nil {
		return nil, nil, err
	}
	p.useModel(ctx, req)
	return req, appendTokenCount, nil
}

func appendTokenCount(b []byte, tokens int) ([]byte, error) {
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), int64(tokens), 10)
	return append(b, '}'), nil
}
