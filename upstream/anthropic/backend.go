// Backend and New.

package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/choices"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// Backend forwards chats to a server that speaks Anthropic's API. Create one with [New]. Its methods may be called
// concurrently.
type Backend struct {
	opts   Options
	server *upstream.Backend // has the transports
	client *client.Client

	messages, countTokens, models client.Endpoint
}

// New returns a Backend for the server at baseURL, the URL that Anthropic's SDKs are configured with, such as
// "https://api.anthropic.com", and not that of an endpoint. One that ends in "/v1" is accepted too. New copies opts; nil
// means the zero Options.
//
// New returns an error if baseURL or an option is invalid. It does not contact the server.
func New(baseURL string, opts *Options) (*Backend, error) {
	b := new(Backend)
	if opts != nil {
		b.opts = *opts
	}
	if err := option.CheckInterfaces(&b.opts); err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	if err := b.opts.validate(); err != nil {
		return nil, err
	}
	b.opts.setDefaults()
	var err error
	if b.server, err = upstream.New(baseURL, &b.opts.Server); err != nil {
		return nil, errors.New("anthropic: " + strings.TrimPrefix(strings.ReplaceAll(err.Error(), "Options.", "Options.Server."), "upstream: "))
	}
	b.client = client.Of(b.server)
	path := strings.TrimRight(b.client.Base.Path, "/")
	if strings.HasSuffix(path, "/messages") {
		return nil, errors.New(`anthropic: the base URL must not end in "/messages", which the Backend appends: use the part before "/v1"`)
	}
	h := b.client.Header
	if key := b.opts.Server.Key; key != "" {
		h.Del(headerAuthorization)
		b.opts.setKey(h, key)
	}
	b.client.SetKey = b.opts.setKey
	h.Set(headerVersion, b.opts.Version)
	if len(b.opts.Betas) > 0 {
		h.Set(headerBeta, strings.Join(b.opts.Betas, ","))
	}
	version := "v1/"
	if strings.HasSuffix(path, "/v1") {
		version = ""
	}
	b.messages = b.client.Endpoint(http.MethodPost, version+"messages")
	b.messages.Required = true
	b.countTokens = b.client.Endpoint(http.MethodPost, version+"messages/count_tokens")
	b.models = b.client.Endpoint(http.MethodGet, version+"models")
	b.countTokens.Limits.ReadOn = 0
	b.models.Limits = reply.Limits{MaxReply: min(b.models.Limits.MaxReply, client.MaxModelReply)}
	return b, nil
}

// CloseIdleConnections closes the idle connections of the transport that New created. It does not affect
// Options.Server.Transport. The Backend remains usable.
func (b *Backend) CloseIdleConnections() { b.server.CloseIdleConnections() }

// Chat implements [github.com/llmhttp/llmhttp.Backend]. The API has one choice for each request, so several are as many
// requests, one after the other.
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return choices.Chat(ctx, b.chatOne, req)
}

// chatOne is Chat for a request with one choice.
func (b *Backend) chatOne(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		r := newChatReply(yield, b.client.Server.MaxEvent)
		r.Finish(b.forward(ctx, req, r))
	}
}

// forward sends req to the server and yields the chunks of the reply. It does not yield the error that it returns.
func (b *Backend) forward(ctx context.Context, req *llm.ChatRequest, r *chatReply) error {
	model := b.client.ModelNames(req.Model)
	e := newEncoder(&b.opts, req)
	body, err := payload.NewShared(func(buf []byte) ([]byte, error) { return e.encode(buf, model.Server) })
	if err != nil {
		return err
	}
	endpoint := b.messages
	endpoint.Header = b.betaHeader(e)
	r.Reply, err = b.client.Send(ctx, endpoint, body.Payload(), client.Accepted(req.Stream), model)
	body.Release()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.read()
}

// maxBetas bounds the betas of a client.
const maxBetas = 64

// betaHeader returns the header for the betas of a request, or nil if it has none of its own.
func (b *Backend) betaHeader(e *encoder) http.Header {
	all := b.opts.Betas
	for _, beta := range e.own.Betas[:min(len(e.own.Betas), maxBetas)] {
		if isHeaderToken(beta) && !slices.Contains(all, beta) {
			all = append(slices.Clip(all), beta)
		}
	}
	if len(all) == len(b.opts.Betas) {
		return nil
	}
	return http.Header{headerBeta: {strings.Join(all, ",")}}
}
