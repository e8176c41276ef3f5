package llmhttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// A TextFilter rewrites or refuses the texts of one request and of its reply: see [FilterTexts]. A
// nil function leaves its texts as they are. The examples redaction, which replaces strings, and
// guardrail have such functions.
type TextFilter struct {
	// Request is called for each text of the request: see [RewriteTexts].
	Request func(kind TextKind, text string) (string, error)

	// Reply is called for each text of the reply: see [FilterStream]. Texts that come whole, such
	// as the revised prompt of an image, are passed to it once, with End set.
	Reply func(t *ReplyText) (release, hold string, err error)
}

// FilterTexts returns a Backend that passes all texts between clients and b through a filter.
// newFilter is called for each request, so that the filter can have the state of that, such as what
// it has replaced, or depend on the key: see [KeyFrom]. It must be safe for concurrent use; the
// functions of a TextFilter are called one after the other.
//
// The texts are those of chats, of completions of prompts, of prompts whose tokens are counted, of
// embeddings, images, speech, transcriptions, rerank and moderations. What FilterTexts does not know
// does not pass: if b has a method of which this package knows nothing, the Backend that FilterTexts
// returns does not have it. Inputs of embeddings, and prompts, that are token numbers get a 400 if
// there is a function for requests.
//
// A function for replies gets the text of a transcription when it is complete, so clients get a
// stream in one piece. Until then, a chunk without text is passed on for each chunk of b, so that
// timeouts see that it goes on. At most 64 MiB are collected; more is an error. If the function
// changes the text, the reply has no segments, words and log probabilities; then a client that wants
// subtitles gets a 400. Audio is not filtered.
//
// An error of Request is that of the request, and nothing of it reaches b. It is recorded without
// usage. If it wraps [ErrContentFiltered], the client gets a 400 with the code content_filter. The
// same error of Reply ends a choice with FinishContentFilter, and refuses a reply that is not a
// chat as if the request had been refused, except for its usage.
//
// FilterTexts panics if b or newFilter is nil.
func FilterTexts(b Backend, newFilter func(ctx context.Context) TextFilter) Backend {
	if option.IsNil(b) || newFilter == nil {
		panic("llmhttp: FilterTexts with a nil Backend or function")
	}
	return &textFilterBackend{b, newFilter}
}

// A textFilterBackend is what FilterTexts returns. It does not embed the Backend and has no Unwrap, so
// what it does not filter is hidden. TestAbilities fails if a method is missing.
type textFilterBackend struct {
	next      Backend
	newFilter func(ctx context.Context) TextFilter
}

// rewrite rewrites the texts of a request.
func (f *TextFilter) rewrite(req any) error {
	if f.Request == nil {
		return nil
	}
	if err := RewriteTexts(req, f.Request); err != nil {
		return errors.Join(errFiltered(err), llm.ErrNotSent)
	}
	return nil
}

// errFiltered returns the error of a request of which a text was refused with err.
func errFiltered(err error) error {
	if _, ok := errors.AsType[*llm.Error](err); ok || !errors.Is(err, ErrContentFiltered) {
		return err
	}
	e := llm.Errorf(http.StatusBadRequest, "content_filter", "The request was refused by a content filter.")
	e.Err, e.NoRetry = err, true
	return e
}

// rewriter returns a textRewriter for the texts of a reply that is not a chat, or nil if they are
// left as they are.
func (f *TextFilter) rewriter() *textRewriter {
	if f.Reply == nil {
		return nil
	}
	return &textRewriter{f: func(kind TextKind, s string) (string, error) {
		release, hold, err := f.Reply(&ReplyText{Kind: kind, Call: -1, Text: s, End: true})
		return release + hold, err
	}}
}

// Chat implements [Backend].
func (b *textFilterBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return b.filterGeneration(ctx, chatGeneration{req}, req)
}

// Complete implements [Completer].
func (b *textFilterBackend) Complete(ctx context.Context, req *CompletionRequest) llm.ChatStream {
	return b.filterGeneration(ctx, req, req)
}

// filterGeneration filters the texts of req, which is of the request texts, and of its reply.
func (b *textFilterBackend) filterGeneration(ctx context.Context, req generation, texts any) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		filter, choices := b.newFilter(ctx), req.Choices()
		if err := filter.rewrite(texts); err != nil {
			yield(nil, err)
			return
		}
		stream := req.send(ctx, b.next)
		if filter.Reply == nil && stream != nil {
			stream(yield)
			return
		}
		s := newStreamFilter(choices, filter.Reply, yield)
		s.run(stream)
		warnMisuses(ctx, s.order.Misuses)
	}
}

// CountTokens implements [TokenCounter].
func (b *textFilterBackend) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	filter := b.newFilter(ctx)
	if filter.Request != nil {
		req = req.Clone() // CountTokens does not change it
	}
	if err := filter.rewrite(req); err != nil {
		return 0, err
	}
	return callAbility(ctx, b.next, TokenCounter.CountTokens, req)
}

// Embed implements [Embedder].
func (b *textFilterBackend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return filterReply(ctx, b, req, Embedder.Embed, func(w *textRewriter, r *llm.EmbeddingResponse) {
		w.extra(texts.KindWhole, cloneExtra(&r.Extra))
	})
}

// GenerateImages implements [ImageGenerator].
func (b *textFilterBackend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return filterReply(ctx, b, req, ImageGenerator.GenerateImages, (*textRewriter).images)
}

// EditImages implements [ImageEditor].
func (b *textFilterBackend) EditImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return filterReply(ctx, b, req, ImageEditor.EditImages, (*textRewriter).images)
}

// StreamImages implements [ImageStreamer].
func (b *textFilterBackend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		filter := b.newFilter(ctx)
		if err := filter.rewrite(req); err != nil {
			yield(nil, err)
			return
		}
		stream, w := StreamImages(ctx, b.next, req), filter.rewriter()
		switch {
		case stream == nil:
			yield(nil, errNilStream)
			return
		case w == nil:
			stream(yield)
			return
		}
		stream(func(c *llm.ImageChunk, err error) bool {
			if err != nil || c == nil || c.Image == nil {
				return yield(c, err)
			}
			out, image := *c, *c.Image // which belong to b.next
			w.image(&image)
			if w.err != nil {
				yield(nil, errFiltered(w.err))
				return false
			}
			out.Image = &image
			return yield(&out, nil)
		})
	}
}

// images rewrites the texts of a reply with images.
func (w *textRewriter) images(r *llm.ImageResponse) {
	r.Data = slices.Clone(r.Data)
	for i := range r.Data {
		w.image(&r.Data[i])
	}
	w.extra(texts.KindWhole, cloneExtra(&r.Extra))
}

func (w *textRewriter) image(m *llm.Image) {
	w.rewrite(TextContent, &m.RevisedPrompt)
	w.extra(texts.KindWhole, cloneExtra(&m.Extra))
}

// Rerank implements [Reranker].
func (b *textFilterBackend) Rerank(ctx context.Context, req *RerankRequest) (*RerankResponse, error) {
	return filterReply(ctx, b, req, Reranker.Rerank, func(w *textRewriter, r *RerankResponse) {
		r.Results = slices.Clone(r.Results)
		for i := range r.Results {
			w.extra(texts.KindWhole, cloneExtra(&r.Results[i].Extra))
		}
		w.extra(texts.KindWhole, cloneExtra(&r.Extra))
	})
}

// Moderate implements [Moderator].
func (b *textFilterBackend) Moderate(ctx context.Context, req *ModerationRequest) (*ModerationResponse, error) {
	return filterReply(ctx, b, req, Moderator.Moderate, func(w *textRewriter, r *ModerationResponse) {
		r.Results = slices.Clone(r.Results)
		for i := range r.Results {
			w.extra(texts.KindWhole, cloneExtra(&r.Results[i].Extra))
		}
		w.extra(texts.KindWhole, cloneExtra(&r.Extra))
	})
}

// filterReply filters a request, calls a method of the interface A of b.next, and filters a copy of the reply, which
// belongs to b.next. rewrite clones what it changes.
func filterReply[A, Q, R any](
	ctx context.Context,
	b *textFilterBackend,
	req Q,
	method func(a A, ctx context.Context, req Q) (*R, error),
	rewrite func(w *textRewriter, r *R),
) (*R, error) {
	filter := b.newFilter(ctx)
	if err := filter.rewrite(req); err != nil {
		return nil, err
	}
	resp, err := callAbility(ctx, b.next, method, req)
	w := filter.rewriter()
	if w == nil || err != nil || resp == nil {
		return resp, err
	}
	out := *resp
	rewrite(w, &out)
	return &out, errFiltered(w.err)
}

// cloneExtra replaces e by a copy, and returns that.
func cloneExtra(e *llm.Extra) llm.Extra {
	*e = maps.Clone(*e)
	return *e
}

// Speak implements [Speaker]. Audio has no texts.
func (b *textFilterBackend) Speak(ctx context.Context, req *SpeechRequest) SpeechStream {
	return func(yield func(*SpeechChunk, error) bool) {
		filter := b.newFilter(ctx)
		if err := filter.rewrite(req); err != nil {
			yield(nil, err)
			return
		}
		if stream := streamAbility(ctx, b.next, Speaker.Speak, req); stream != nil {
			stream(yield)
		} else {
			yield(nil, errNilStream)
		}
	}
}

// Transcribe implements [Transcriber]. The text is filtered when it is complete.
func (b *textFilterBackend) Transcribe(ctx context.Context, req *TranscriptionRequest) TranscriptionStream {
	return func(yield func(*TranscriptionChunk, error) bool) {
		filter := b.newFilter(ctx)
		if err := filter.rewrite(req); err != nil {
			yield(nil, err)
			return
		}
		stream, w := streamAbility(ctx, b.next, Transcriber.Transcribe, req), filter.rewriter()
		switch {
		case stream == nil:
			yield(nil, errNilStream)
			return
		case w == nil:
			stream(yield)
			return
		}
		c, err := collectTranscription(stream, maxHeld, func(c *TranscriptionChunk) bool {
			// Without it, the reader would take the stream for silent.
			return yield(&TranscriptionChunk{Usage: c.Usage, Duration: c.Duration}, nil)
		})
		switch {
		case c == nil:
			return
		case err != nil:
			yield(nil, err)
			return
		}
		w.transcription(c)
		yield(c, errFiltered(w.err))
	}
}

// transcription rewrites the texts of a reply. The segments, the words and the log probabilities
// have the text in pieces, in which a filter does not find what is divided between them. So all of
// them are dropped if the filter changes the text, or that of the segments or words, which may be
// another one.
func (w *textRewriter) transcription(c *TranscriptionChunk) {
	var segments, words strings.Builder
	for i := range c.Segments {
		s := &c.Segments[i]
		segments.WriteString(s.Text)
		w.rewrite(TextOther, &s.Speaker)
		w.extra(texts.KindWhole, s.Extra)
	}
	for i := range c.Words {
		words.WriteString(c.Words[i].Word + " ")
		w.extra(texts.KindWhole, c.Words[i].Extra)
	}
	text := c.Text
	w.rewrite(TextContent, &c.Text)
	changed := c.Text != text
	for _, pieces := range []string{segments.String(), words.String()} {
		if sameWords(pieces, text) {
			continue // the filter has seen it
		}
		filtered := pieces
		w.rewrite(TextContent, &filtered)
		changed = changed || filtered != pieces
	}
	if changed {
		c.Segments, c.Words = nil, nil
		delete(c.Extra, "logprobs")
	}
	w.extra(texts.KindWhole, c.Extra)
}

// sameWords reports whether a and b differ only in white space between words and around them.
func sameWords(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// ImageSizes implements [ImageSizer]. It has no texts.
func (b *textFilterBackend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	return callAbility(ctx, b.next, ImageSizer.ImageSizes, model)
}

// ListModels implements [ModelLister]. Its texts are those of the host.
func (b *textFilterBackend) ListModels(ctx context.Context) ([]llm.Model, error) {
	return listModels(ctx, b.next)
}

// validText returns s with U+FFFD in place of what is not UTF-8.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
