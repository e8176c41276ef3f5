package llmfake

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelreply"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// backend is the [llmhttp.Backend] of a Server.
type backend struct{ s *Server }

// Chat implements [llmhttp.Backend].
func (b backend) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		ex := exchangeFrom(ctx)
		request := b.s.describe(ctx, func(r *Request) { r.Chat, r.Model, r.Stream = req.Clone(), req.Model, req.Stream })
		if ex.isProbe() {
			yield(nil, errMarker)
			return
		}
		p := &player{server: b.s, ctx: ctx, exchange: ex, request: request, chat: req, pace: b.s.paceOf(request)}
		p.model = func(ctx context.Context) llmhttp.ChatStream {
			asked := req.Clone()
			asked.Model = simulator.ModelChat
			return b.s.model.Chat(ctx, asked)
		}
		p.stream(yield)
	}
}

// Complete implements [llmhttp.Completer]. For a player, the prompts are the messages of a chat.
func (b backend) Complete(ctx context.Context, req *llmhttp.CompletionRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		ex := exchangeFrom(ctx)
		request := b.s.describe(ctx, func(r *Request) { r.Completion, r.Model, r.Stream = new(*req), req.Model, req.Stream })
		if ex.isProbe() {
			yield(nil, errMarker)
			return
		}
		chat := &llmhttp.ChatRequest{Model: req.Model, N: new(req.Choices()), MaxTokens: req.MaxTokens, Stop: req.Stop, Stream: req.Stream}
		for _, text := range req.Prompt.Texts {
			chat.Messages = append(chat.Messages, llmhttp.Message{Role: llmhttp.RoleUser, Content: llmhttp.Text(text)})
		}
		p := &player{server: b.s, ctx: ctx, exchange: ex, request: request, chat: chat, pace: b.s.paceOf(request)}
		p.model = func(ctx context.Context) llmhttp.ChatStream {
			asked := *req
			asked.Model = simulator.ModelComplete
			return b.s.model.Complete(ctx, &asked)
		}
		p.stream(yield)
	}
}

// stream plays the reply that the request gets, and its end.
func (p *player) stream(yield func(*llmhttp.ChatChunk, error) bool) {
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
func (b backend) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
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
	return &llmhttp.EmbeddingResponse{Vectors: p.vectors, Usage: p.usage}, nil
}

// Rerank implements [llmhttp.Reranker].
func (b backend) Rerank(ctx context.Context, req *llmhttp.RerankRequest) (*llmhttp.RerankResponse, error) {
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
	resp := &llmhttp.RerankResponse{Usage: p.usage}
	for i, score := range p.scores {
		resp.Results = append(resp.Results, llmhttp.RerankResult{Index: i, Score: score})
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
func (b backend) GenerateImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	if err := b.playImages(ctx, req); err != nil {
		return nil, err
	}
	return simulator.Draw(ctx, req)
}

// EditImages implements [llmhttp.ImageEditor].
func (b backend) EditImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	return b.GenerateImages(ctx, req)
}

// StreamImages implements [llmhttp.ImageStreamer].
func (b backend) StreamImages(ctx context.Context, req *llmhttp.ImageRequest) llmhttp.ImageStream {
	return func(yield func(*llmhttp.ImageChunk, error) bool) {
		if err := b.playImages(ctx, req); err != nil {
			yield(nil, err)
			return
		}
		simulator.DrawStream(ctx, req, 0)(yield)
	}
}

// playImages plays the reply to a request for images or an edit. If there is no error, it is the
// simulated one.
func (b backend) playImages(ctx context.Context, req *llmhttp.ImageRequest) error {
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
func (b backend) CountTokens(ctx context.Context, req *llmhttp.ChatRequest) (int, error) {
	asked := *req
	asked.Model = simulator.ModelChat
	return b.s.model.CountTokens(ctx, &asked)
}

// ListModels implements [llmhttp.ModelLister].
func (b backend) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
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
var errMarker = llmhttp.Errorf(http.StatusBadRequest, "llmfake_marker", "%s", markerText)

const markerText = "llmfake-marker-2f1d8e50: no client gets this text"

// A player gives a Reply to one request.
type player struct {
	server   *Server
	ctx      context.Context
	exchange *exchange
	request  *Request
	chat     *llmhttp.ChatRequest                     // nil if the reply is not a stream of chunks
	yield    func(*llmhttp.ChatChunk, error) bool     // nil if the reply is not a stream of chunks
	model    func(context.Context) llmhttp.ChatStream // the reply of the simulated model
	pace     *replyPace

	choices  []int // those that deltas are for; nil before the first delta
	inChoice bool  // playChoices is running
	calls    int   // of each of the choices
	ends     map[int]*choiceEnd
	length   length // of each of the choices
	finish   llmhttp.FinishReason
	usage    *llmhttp.Usage
	texts    map[textOf]*strings.Builder // what counts as the completion
	sent     bool                        // a chunk was sent
	finished bool                        // sendFinish was called
	err      error                       // why the reply failed

	simulated bool        // of a request that is not for a chat
	vectors   [][]float32 // of a request for embeddings
	scores    []float64   // of a request to rerank
	audio     [][]byte    // of a request for speech
}

// A textOf names a text of a reply, whose tokens are counted for themselves.
type textOf struct {
	choice int
	kind   string
}

// A choiceEnd is how a choice ends.
type choiceEnd struct {
	reason llmhttp.FinishReason
	stop   string
}

// play plays r. It reports whether more may follow.
func (p *player) play(r Reply) bool {
	if r.rewrite != nil {
		p.exchange.out.setRewrite(func(protocol string, event []byte) (result []byte, ok bool) {
			ok = p.server.try("the function of Rewrite", func() { result = r.rewrite(protocol, event) })
			return result, ok
		}, p.request.Protocol)
	}
	if r.usage != nil {
		p.usage = new(*r.usage)
	}
	if r.finish != "" {
		p.finish = r.finish
	}
	for _, s := range r.steps {
		if !s(p) {
			return false
		}
	}
	return true
}

// fail ends the reply with err.
func (p *player) fail(err error) bool {
	p.err = err
	if p.yield != nil {
		p.yield(nil, err)
	}
	return false
}

// wait waits for d.
func (p *player) wait(d time.Duration) bool {
	if d <= 0 || modelreply.Sleep(p.ctx, d) {
		return true
	}
	return p.fail(context.Cause(p.ctx))
}

// indices returns the choices that deltas are for: all that the client asked for, or that of
// playChoices.
func (p *player) indices() []int {
	if p.choices == nil {
		for i := range max(p.chat.Choices(), 1) {
			p.choices = append(p.choices, i)
		}
	}
	return p.choices
}

// end returns how a choice ends.
func (p *player) endOf(choice int) *choiceEnd {
	if p.ends == nil {
		p.ends = make(map[int]*choiceEnd)
	}
	if p.ends[choice] == nil {
		p.ends[choice] = &choiceEnd{reason: llmhttp.FinishStop}
	}
	return p.ends[choice]
}

// send sends a delta for each of the choices.
func (p *player) send(d llmhttp.Delta) bool {
	if p.chat == nil {
		p.server.errorf("%s got %s, which is a reply to a chat", p.request, p.request.Reply)
		return p.fail(errUnexpectedReply())
	}
	for _, i := range p.indices() {
		p.endOf(i)
		c := &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Index: i, Delta: d}}}
		if !p.sendChunk(c.Clone()) {
			return false
		}
	}
	return true
}

// sendChunk sends a chunk at the pace of the Server.
func (p *player) sendChunk(c *llmhttp.ChatChunk) bool {
	if p.chat == nil {
		return p.send(llmhttp.Delta{})
	}
	if !p.wait(p.pace.next()) {
		return false
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		p.note(textOf{choice.Index, "reasoning"}, d.Reasoning)
		p.note(textOf{choice.Index, "content"}, d.Content)
		p.note(textOf{choice.Index, "refusal"}, d.Refusal)
		for _, call := range d.ToolCalls {
			p.note(textOf{choice.Index, "call " + strconv.Itoa(call.Index)}, call.Function.Arguments)
			if end := p.endOf(choice.Index); end.reason == llmhttp.FinishStop {
				end.reason = llmhttp.FinishToolCalls
			}
		}
		if choice.FinishReason != "" {
			*p.endOf(choice.Index) = choiceEnd{choice.FinishReason, choice.StopSequence}
			choice.FinishReason, choice.StopSequence = "", ""
		}
	}
	if c.Usage != nil {
		if p.usage == nil {
			p.usage = c.Usage
		}
		c.Usage = nil
	}
	p.sent = true
	return p.yield(c, nil)
}

// note adds a piece of a text to those that count as the completion.
func (p *player) note(of textOf, piece string) {
	if piece == "" {
		return
	}
	if p.texts == nil {
		p.texts = make(map[textOf]*strings.Builder)
	}
	if p.texts[of] == nil {
		p.texts[of] = &strings.Builder{}
	}
	p.texts[of].WriteString(piece)
}

// sendCall sends a call of a tool, in pieces.
func (p *player) sendCall(tool, arguments string) bool {
	if p.chat == nil {
		return p.send(llmhttp.Delta{})
	}
	if p.length.over {
		return true
	}
	arguments = p.cut(arguments, false)
	index := p.calls
	p.calls++
	for _, i := range p.indices() {
		call := llmhttp.ToolCallDelta{Index: index, ID: p.server.newCallID(), Type: "function", Function: llmhttp.FunctionCall{Name: tool}}
		for _, piece := range splitArguments(arguments) {
			call.Function.Arguments = piece
			c := &llmhttp.ChatChunk{
				Choices: []llmhttp.ChunkChoice{{Index: i, Delta: llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{call}}}},
			}
			if !p.sendChunk(c) {
				return false
			}
			call = llmhttp.ToolCallDelta{Index: index}
		}
	}
	return true
}

// newCallID returns the ID of the next tool call.
func (s *Server) newCallID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return fmt.Sprintf("call_llmfake_%d", s.calls)
}

// playChoices plays a reply for each choice that the client asked for.
func (p *player) playChoices(choices []Reply) bool {
	if p.chat == nil {
		return p.send(llmhttp.Delta{})
	}
	finish := p.finish
	for i, r := range choices[:min(len(choices), max(p.chat.Choices(), 1))] {
		p.choices, p.inChoice, p.calls, p.finish, p.length = []int{i}, true, 0, "", length{}
		p.endOf(i)
		if !p.play(r) {
			return false
		}
		if p.finish != "" {
			p.endOf(i).reason = p.finish
		}
	}
	p.inChoice, p.finish = false, finish
	return true
}

// simulate plays the reply of the simulated model, without its end.
func (p *player) simulate() bool {
	if p.chat == nil {
		p.simulated = true
		return true
	}
	for c, err := range p.model(p.ctx) {
		if err != nil {
			return p.fail(err)
		}
		if p.inChoice && len(c.Choices) > 0 {
			if c.Choices[0].Index != 0 {
				continue
			}
			c.Choices[0].Index = p.choices[0]
		}
		if !p.sendChunk(c) {
			return false
		}
	}
	return true
}

// sendFinish sends the end of the reply, once.
func (p *player) sendFinish() {
	if p.chat == nil || p.finished {
		return
	}
	p.finished = true
	if len(p.ends) == 0 {
		for _, i := range p.indices() {
			p.endOf(i)
		}
	}
	c := &llmhttp.ChatChunk{Usage: p.finalUsage()}
	for _, i := range slices.Sorted(maps.Keys(p.ends)) {
		end := p.ends[i]
		if p.finish != "" {
			end.reason = p.finish
		}
		c.Choices = append(c.Choices, llmhttp.ChunkChoice{Index: i, FinishReason: end.reason, StopSequence: end.stop})
	}
	p.yield(c, nil)
}

// finalUsage returns the usage that the reply reports.
func (p *player) finalUsage() *llmhttp.Usage {
	if p.usage != nil {
		return p.usage
	}
	u := &llmhttp.Usage{}
	for of, text := range p.texts {
		n := simulator.CountTokens(p.chat.Model, text.String())
		u.CompletionTokens += n
		if of.kind == "reasoning" {
			u.CompletionTokensDetails.ReasoningTokens += n
		}
	}
	if n, err := (backend{p.server}).CountTokens(p.ctx, p.chat); err == nil {
		u.PromptTokens = n
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// end ends the reply as kind says.
func (p *player) end(kind endKind) bool {
	p.exchange.out.setEnd(kind)
	isCutAtOnce := kind == endCut && !p.sent
	if p.chat == nil && kind != endCut {
		p.simulated = true // and the output damages the reply
		return false
	}
	if p.chat == nil || p.request.Stream || isCutAtOnce {
		return p.fail(errMarker)
	}
	p.sendFinish()
	return false
}

// signature returns a signature for reasoning that a Server has sent.
func signature(reasoning string) string {
	sum := sha256.Sum256([]byte(reasoning))
	return "llmfake." + base64.RawURLEncoding.EncodeToString(sum[:])
}

var errClosed = errors.New("llmfake: the server is closed")
