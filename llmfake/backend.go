// What the Handler of a Server calls; chats.

package llmfake

import (
	"context"
	"net/http"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// backend is the [llmhttp.Backend] of a Server.
type backend struct{ s *Server }

// Chat implements [llmhttp.Backend].
func (b backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		request := b.s.describe(ctx, func(r *Request) { r.Chat, r.Model, r.Stream = req.Clone(), req.Model, req.Stream })
		p := &player{server: b.s, ctx: ctx, exchange: exchangeFrom(ctx), request: request, chat: req}
		p.model = func(ctx context.Context) llm.ChatStream {
			asked := req.Clone()
			asked.Model = simulator.ModelChat
			return b.s.model.Chat(ctx, asked)
		}
		p.stream(yield)
	}
}

// stream plays the reply that the request gets, and its end.
func (p *player) stream(yield func(*llm.ChatChunk, error) bool) {
	if p.exchange.isProbe() {
		yield(nil, errMarker)
		return
	}
	p.yield, p.pace = yield, p.server.paceOf(p.request)
	reply, err := p.server.choose(p.request)
	if err != nil {
		yield(nil, err)
		return
	}
	p.server.setReply(p.ctx, reply.String())
	if p.play(reply) {
		p.sendFinish()
	}
}

// CountTokens implements [llmhttp.TokenCounter].
func (b backend) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	asked := *req
	asked.Model = simulator.ModelChat
	return b.s.model.CountTokens(ctx, &asked)
}

// ListModels implements [llmhttp.ModelLister].
func (b backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	models, err := b.s.model.ListModels(ctx)
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return append(models, b.s.models...), err
}

// describe completes the Request that ctx belongs to, now that it is decoded. It returns a copy,
// which does not change.
func (s *Server) describe(ctx context.Context, set func(r *Request)) *Request {
	r := exchangeFrom(ctx).request
	s.mu.Lock()
	defer s.mu.Unlock()
	if info := llmhttp.RequestInfoFrom(ctx); info != nil {
		r.Protocol, r.Operation = info.Protocol, info.Operation
	}
	set(r)
	return new(*r)
}

// setReply notes which reply the request of ctx gets.
func (s *Server) setReply(ctx context.Context, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	exchangeFrom(ctx).request.Reply = text
}

// playOther plays the reply to a request that is not for a chat, which set completes. The error is for
// the client.
func (s *Server) playOther(ctx context.Context, set func(r *Request)) (*player, error) {
	p := &player{server: s, ctx: ctx, exchange: exchangeFrom(ctx), request: s.describe(ctx, set)}
	if p.exchange.isProbe() {
		return nil, errMarker
	}
	reply, err := s.choose(p.request)
	if err != nil {
		return nil, err
	}
	p.request.Reply = reply.String()
	s.setReply(ctx, p.request.Reply)
	p.play(reply)
	return p, p.err
}

// misfit fails the test because the reply does not fit its request, which is one for what. The error is
// for the client.
func (p *player) misfit(what string) error {
	p.server.errorf("%s got %s, which is no reply to a request %s", p.request, p.request.Reply, what)
	return errUnexpectedReply()
}

// errMarker is the error of a backend whose reply the [output] replaces. The output recognises
// what a Handler has made of it by its text.
var errMarker = llm.Errorf(http.StatusBadRequest, "llmfake_marker", "%s", markerText)

const markerText = "llmfake-marker-2f1d8e50: no client gets this text"
