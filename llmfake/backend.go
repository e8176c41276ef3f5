package llmfake

import (
	"context"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/rerank"
)

// backend is the [llmhttp.Backend] of a Server.
type backend struct{ s *Server }

// Chat implements [llmhttp.Backend].
func (b backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		ex := exchangeFrom(ctx)
		request := b.s.describe(ctx, func(r *Request) { r.Chat, r.Model, r.Stream = req.Clone(), req.Model, req.Stream })
		if ex.isProbe() {
			yield(nil, errMarker)
			return
		}
		p := &player{server: b.s, ctx: ctx, exchange: ex, request: request, chat: req, pace: b.s.paceOf(request)}
		p.model = func(ctx context.Context) llm.ChatStream {
			asked := req.Clone()
			asked.Model = simulator.ModelChat
			return b.s.model.Chat(ctx, asked)
		}
		p.stream(yield)
	}
}

// Complete implements [llmhttp.Completer]. For a player, the prompts are the messages of a chat.
func (b backend) Complete(ctx context.Context, req *llmhttp.CompletionRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		ex := exchangeFrom(ctx)
		request := b.s.describe(ctx, func(r *Request) { r.Completion, r.Model, r.Stream = new(*req), req.Model, req.Stream })
		if ex.isProbe() {
			yield(nil, errMarker)
			return
		}
		chat := &llm.ChatRequest{Model: req.Model, N: new(req.Choices()), MaxTokens: req.MaxTokens, Stop: req.Stop, Stream: req.Stream}
		for _, text := range req.Prompt.Texts {
			chat.Messages = append(chat.Messages, llm.Message{Role: llm.RoleUser, Content: llm.Text(text)})
		}
		p := &player{server: b.s, ctx: ctx, exchange: ex, request: request, chat: chat, pace: b.s.paceOf(request)}
		p.model = func(ctx context.Context) llm.ChatStream {
			asked := *req
			asked.Model = simulator.ModelComplete
			return b.s.model.Complete(ctx, &asked)
		}
		p.stream(yield)
	}
}

// stream plays the reply that the request gets, and its end.
func (p *player) stream(yield func(*llm.ChatChunk, error) bool) {
	p.yield = yield
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

// Embed implements [llmhttp.Embedder].
func (b backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	request := b.s.describe(ctx, func(r *Request) { r.Embedding, r.Model = new(*req), req.Model })
	p, err := b.s.playOther(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case p.simulated:
		asked := *req
		asked.Model = simulator.ModelEmbed
		resp, err := b.s.model.Embed(ctx, &asked)
		if err == nil {
			resp.Model = ""
		}
		return resp, err
	case p.vectors == nil:
		b.s.errorf("%s got %s, which is no reply to a request for embeddings", request, request.Reply)
		return nil, errUnexpectedReply()
	case len(p.vectors) != req.Input.Len():
		b.s.errorf("%s has %s, and its reply has %s", request, plural(req.Input.Len(), "input"), plural(len(p.vectors), "vector"))
		return nil, errUnexpectedReply()
	}
	return &llm.EmbeddingResponse{Vectors: p.vectors, Usage: p.usage}, nil
}

// Rerank implements [rerank.Reranker].
func (b backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	request := b.s.describe(ctx, func(r *Request) { r.Rerank, r.Model = new(*req), req.Model })
	p, err := b.s.playOther(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case p.simulated:
		asked := *req
		asked.Model = simulator.ModelRerank
		resp, err := b.s.model.Rerank(ctx, &asked)
		if err == nil {
			resp.Model = ""
		}
		return resp, err
	case p.scores == nil:
		b.s.errorf("%s got %s, which is no reply to a request to rerank", request, request.Reply)
		return nil, errUnexpectedReply()
	case len(p.scores) != len(req.Documents):
		b.s.errorf("%s has %s, and its reply has %s", request, plural(len(req.Documents), "document"), plural(len(p.scores), "score"))
		return nil, errUnexpectedReply()
	}
	resp := &rerank.Response{Usage: p.usage}
	for i, score := range p.scores {
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: score})
	}
	return resp, nil
}

// Moderate implements [llmhttp.Moderator].
func (b backend) Moderate(ctx context.Context, req *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
	request := b.s.describe(ctx, func(r *Request) { r.Moderation, r.Model = new(*req), req.Model })
	p, err := b.s.playOther(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case !p.simulated:
		b.s.errorf("%s got %s, which is no reply to a request for a moderation", request, request.Reply)
		return nil, errUnexpectedReply()
	}
	asked := *req
	asked.Model = simulator.ModelModeration
	resp, err := b.s.model.Moderate(ctx, &asked)
	if err == nil {
		resp.Model = ""
	}
	return resp, err
}

// GenerateImages implements [llmhttp.ImageGenerator].
func (b backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	if err := b.playImages(ctx, req); err != nil {
		return nil, err
	}
	return simulator.Draw(ctx, req)
}

// EditImages implements [llmhttp.ImageEditor].
func (b backend) EditImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return b.GenerateImages(ctx, req)
}

// StreamImages implements [llmhttp.ImageStreamer].
func (b backend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		if err := b.playImages(ctx, req); err != nil {
			yield(nil, err)
			return
		}
		simulator.DrawStream(ctx, req, 0)(yield)
	}
}

// playImages plays the reply to a request for images or an edit. If there is no error, it is the
// simulated one.
func (b backend) playImages(ctx context.Context, req *llm.ImageRequest) error {
	request := b.s.describe(ctx, func(r *Request) { r.Image, r.Model, r.Stream = new(*req), req.Model, req.Stream })
	p, err := b.s.playOther(ctx, request)
	if err == nil && !p.simulated {
		what := "images"
		if req.Images != nil {
			what = "edits of images"
		}
		b.s.errorf("%s got %s, which is no reply to a request for %s", request, request.Reply, what)
		err = errUnexpectedReply()
	}
	return err
}

// Speak implements [llmhttp.Speaker].
func (b backend) Speak(ctx context.Context, req *llmhttp.SpeechRequest) llmhttp.SpeechStream {
	return func(yield func(*llmhttp.SpeechChunk, error) bool) {
		request := b.s.describe(ctx, func(r *Request) { r.Speech, r.Model, r.Stream = new(*req), req.Model, true })
		p, err := b.s.playOther(ctx, request)
		switch {
		case err != nil:
			yield(nil, err)
			return
		case p.simulated:
			asked := *req
			asked.Model = simulator.ModelSpeech
			b.s.model.Speak(ctx, &asked)(yield)
			return
		case p.audio == nil:
			b.s.errorf("%s got %s, which is no reply to a request for speech", request, request.Reply)
			yield(nil, errUnexpectedReply())
			return
		}
		for _, piece := range p.audio {
			if !yield(&llmhttp.SpeechChunk{Audio: piece}, nil) {
				return
			}
		}
		yield(&llmhttp.SpeechChunk{Usage: p.usage}, nil)
	}
}

// Transcribe implements [llmhttp.Transcriber].
func (b backend) Transcribe(ctx context.Context, req *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
	return func(yield func(*llmhttp.TranscriptionChunk, error) bool) {
		request := b.s.describe(ctx, func(r *Request) { r.Transcription, r.Model, r.Stream = req.Clone(), req.Model, req.Stream })
		p, err := b.s.playOther(ctx, request)
		switch {
		case err != nil:
			yield(nil, err)
			return
		case !p.simulated:
			b.s.errorf("%s got %s, which is no reply to a request for a transcription", request, request.Reply)
			yield(nil, errUnexpectedReply())
			return
		}
		asked := req.Clone()
		asked.Model = simulator.ModelTranscribe
		b.s.model.Transcribe(ctx, asked)(yield)
	}
}

// vendorSizes has the sizes of the image models of OpenAI, by the beginnings of their names.
var vendorSizes = []struct {
	model string
	sizes []string
}{
	{"dall-e-2", []string{"256x256", "512x512", "1024x1024"}},
	{"dall-e-3", []string{"1024x1024", "1024x1792", "1792x1024"}},
	{"gpt-image-1", []string{"1024x1024", "1024x1536", "1536x1024"}},
}

// ImageSizes implements [llmhttp.ImageSizer].
func (b backend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	for _, v := range vendorSizes {
		if strings.HasPrefix(model, v.model) {
			return v.sizes, nil
		}
	}
	return nil, nil // any
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

// playOther plays the reply to a request that is not for a chat. The error is for the client.
func (s *Server) playOther(ctx context.Context, request *Request) (*player, error) {
	p := &player{server: s, ctx: ctx, exchange: exchangeFrom(ctx), request: request}
	if p.exchange.isProbe() {
		return nil, errMarker
	}
	reply, err := s.choose(request)
	if err != nil {
		return nil, err
	}
	request.Reply = reply.String()
	s.setReply(ctx, request.Reply)
	p.play(reply)
	return p, p.err
}

// errMarker is the error of a backend whose reply the [output] replaces. The output recognises
// what a Handler has made of it by its text.
var errMarker = llm.Errorf(http.StatusBadRequest, "llmfake_marker", "%s", markerText)

const markerText = "llmfake-marker-2f1d8e50: no client gets this text"
