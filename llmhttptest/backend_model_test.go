package llmhttptest

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// Short names for the signatures of mutants.
type (
	chunk      = llm.ChatChunk
	choice     = llm.ChunkChoice
	stream     = llm.ChatStream
	yieldFunc  = func(*chunk, error) bool
	chatReq    = llm.ChatRequest
	imageReq   = llm.ImageRequest
	imageResp  = llm.ImageResponse
	editReq    = imageedit.Request
	vectorReq  = llm.EmbeddingRequest
	vectorResp = llm.EmbeddingResponse
	speechReq  = audio.SpeechRequest
	sound      = audio.SpeechChunk
)

// An echo is a simple correct Backend. It repeats the last message, generates grey
// images, and counts bytes as vectors. Mutants replace its functions.
type echo struct {
	edit     func(i int, c *chunk) *chunk // changes chunk i
	chat     func(e *echo, ctx context.Context, req *chatReq) stream
	complete func(ctx context.Context, req *completionReq) stream
	list     func() ([]llm.Model, error)
	sizes    func(model string) ([]string, error)
	images   func(req *imageReq) (*imageResp, error)
	editing  func(req *editReq) (*imageResp, error)
	editDraw func(ctx context.Context, e *echo, req *editReq) llm.ImageStream
	drawing  func(ctx context.Context, e *echo, req *imageReq) llm.ImageStream
	embed    func(req *vectorReq) (*vectorResp, error)
	rerank   func(req *rerankReq) (*rerankResp, error)
	moderate func(req *moderationReq) (*moderationResp, error)
	speak    func(ctx context.Context, req *speechReq) audio.SpeechStream
	hear     hearFunc
}

var (
	_ llmhttp.Backend        = (*echo)(nil)
	_ completion.Completer   = (*echo)(nil)
	_ llmhttp.ModelLister    = (*echo)(nil)
	_ llmhttp.ImageSizer     = (*echo)(nil)
	_ llmhttp.ImageGenerator = (*echo)(nil)
	_ imageedit.Editor       = (*echo)(nil)
	_ imageedit.Streamer     = (*echo)(nil)
	_ llmhttp.ImageStreamer  = (*echo)(nil)
	_ llmhttp.Embedder       = (*echo)(nil)
	_ rerank.Reranker        = (*echo)(nil)
	_ moderation.Moderator   = (*echo)(nil)
	_ audio.Speaker          = (*echo)(nil)
)

func (e *echo) Chat(ctx context.Context, req *chatReq) stream { return e.chat(e, ctx, req) }

func (e *echo) ListModels(context.Context) ([]llm.Model, error) { return e.list() }

func (e *echo) ImageSizes(_ context.Context, model string) ([]string, error) { return e.sizes(model) }

func (e *echo) GenerateImages(_ context.Context, req *imageReq) (*imageResp, error) {
	return e.images(req)
}

func (e *echo) EditImages(_ context.Context, req *editReq) (*imageResp, error) {
	return e.editing(req)
}

func (e *echo) StreamImageEdits(ctx context.Context, req *editReq) llm.ImageStream {
	return e.editDraw(ctx, e, req)
}

func (e *echo) StreamImages(ctx context.Context, req *imageReq) llm.ImageStream {
	return e.drawing(ctx, e, req)
}

func (e *echo) Embed(_ context.Context, req *vectorReq) (*vectorResp, error) { return e.embed(req) }

func (e *echo) Transcribe(ctx context.Context, req *hearReq) audio.TranscriptionStream {
	return e.hear(ctx, req)
}

func (e *echo) Speak(ctx context.Context, req *speechReq) audio.SpeechStream {
	return e.speak(ctx, req)
}

var echoOptions = BackendOptions{ChatModel: "chat", CompletionModel: "complete", ImageModel: "draw", ImageEditModel: "draw", EmbeddingModel: "embed", RerankModel: "rerank", ModerationModel: "moderate", SpeechModel: "speak", TranscriptionModel: "hear"}

// The window and the output limit of the first model are not known, which a negative number tells.
var echoModels = []llm.Model{{ID: "chat", ContextWindow: -1, OutputLimit: -1}, {ID: "draw"}, {ID: "embed"}, {ID: "rerank"}, {ID: "moderate"}, {ID: "speak"}, {ID: "hear"}, {ID: "complete"}}

func newEcho() *echo {
	return &echo{
		edit:     func(_ int, c *chunk) *chunk { return c },
		chat:     (*echo).repeat,
		complete: repeatPrompts,
		list:     func() ([]llm.Model, error) { return echoModels, nil },
		sizes:    imageSizes,
		images:   drawImages,
		editing:  editImages,
		editDraw: streamEdits,
		drawing:  drawStream,
		embed:    countBytes,
		rerank:   compareTexts,
		moderate: findHate,
		speak:    spell,
		hear:     hear,
	}
}

// repeat yields the words of the last message one by one for each choice.
func (e *echo) repeat(ctx context.Context, req *chatReq) stream {
	return func(yield yieldFunc) {
		if req.Model != "chat" {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		words := strings.SplitAfter(req.Messages[len(req.Messages)-1].Content.Text(), " ")
		reason := llm.FinishStop
		if limit, ok := req.TokenLimit(); ok && len(words) > limit {
			words, reason = words[:limit], llm.FinishLength
		}
		yielded := 0
		send := func(c *chunk) bool {
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return false
			}
			yielded++
			return yield(e.edit(yielded-1, c), nil)
		}
		for _, word := range words {
			for k := range req.Choices() {
				c := llm.TextChunk(word)
				c.Choices[0].Index = k
				if !send(c) {
					return
				}
			}
		}
		end := &chunk{Usage: &llm.Usage{PromptTokens: 7, CompletionTokens: len(words) * req.Choices()}}
		for k := range req.Choices() {
			end.Choices = append(end.Choices, choice{Index: k, FinishReason: reason})
		}
		if len(req.Tools) > 0 {
			end.Choices[0].Delta.ToolCalls = []llm.ToolCallDelta{{ID: "call_1", Type: "function", Function: llm.FunctionCall{Name: "weather"}}}
		}
		send(end)
	}
}

func imageSizes(model string) ([]string, error) {
	if model != "draw" {
		return nil, llm.ModelNotFound(model)
	}
	return []string{"16x8", "8x8"}, nil
}

func drawImages(req *imageReq) (*imageResp, error) {
	if req.Model != "draw" {
		return nil, llm.ModelNotFound(req.Model)
	}
	var b bytes.Buffer
	w, h, ok := parseSize(req.Size)
	if !ok { // it is left to the model
		w, h = 8, 8
	}
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		return nil, err
	}
	resp := new(imageResp)
	for range req.Count() {
		resp.Data = append(resp.Data, llm.Image{Data: b.Bytes()})
	}
	return resp, nil
}

// countBytes returns one vector for each text: the number of times each byte occurs.
func countBytes(req *vectorReq) (*vectorResp, error) {
	if req.Model != "embed" {
		return nil, llm.ModelNotFound(req.Model)
	}
	texts := req.Input.Texts
	if texts == nil {
		return nil, llm.Errorf(400, "invalid_type", "Tokens are not supported.")
	}
	resp := &vectorResp{Usage: &llm.Usage{PromptTokens: len(texts)}}
	for _, text := range texts {
		v := make([]float32, 256)
		if req.Dimensions != nil {
			v = v[:*req.Dimensions]
		}
		for _, b := range []byte(text) {
			v[int(b)%len(v)]++
		}
		resp.Vectors = append(resp.Vectors, v)
	}
	return resp, nil
}

// spell yields the words of a text as audio.
func spell(ctx context.Context, req *speechReq) audio.SpeechStream {
	return func(yield func(*sound, error) bool) {
		if req.Model != "speak" {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		words := strings.SplitAfter(req.Input, " ")
		for i, word := range words {
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}
			if !yield(&sound{Audio: []byte(word), Duration: time.Duration(i+1) * time.Second}, nil) {
				return
			}
		}
		yield(&sound{Usage: &llm.Usage{PromptTokens: len(words)}}, nil)
	}
}

// speaking returns a constructor of a Backend with another Speak.
func speaking(f func(ctx context.Context, req *speechReq) audio.SpeechStream) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.speak = f })
}

// editingSpeech returns a constructor of a Backend that changes the chunks of speech.
func editingSpeech(change func(i int, c *sound)) func(testing.TB) backendTest {
	return speaking(func(ctx context.Context, req *speechReq) audio.SpeechStream {
		return func(yield func(*sound, error) bool) {
			i := 0
			spell(ctx, req)(func(c *sound, err error) bool {
				if c != nil {
					change(i, c)
				}
				i++
				return yield(c, err)
			})
		}
	})
}

// backendFixture returns a constructor of an echo with a fault.
func backendFixture(fault func(*echo)) func(testing.TB) backendTest {
	return func(testing.TB) backendTest {
		e := newEcho()
		fault(e)
		return newBackendTest(e, echoOptions)
	}
}

// chatOnly is a constructor of a Backend without optional methods, although
// BackendOptions have models for them.
func chatOnly(testing.TB) backendTest {
	return newBackendTest(llmhttp.BackendFunc(newEcho().Chat), echoOptions)
}

// editing returns a constructor of a Backend that changes its chunks.
func editing(edit func(i int, c *chunk) *chunk) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.edit = edit })
}

// editingChoice returns a constructor of a Backend that changes the chunks of a
// choice.
func editingChoice(index int, change func(c *choice)) func(testing.TB) backendTest {
	return editing(func(_ int, c *chunk) *chunk {
		for i := range c.Choices {
			if c.Choices[i].Index == index {
				change(&c.Choices[i])
			}
		}
		return c
	})
}

// editingCalls returns a constructor of a Backend that changes its tool calls.
func editingCalls(change func(c *llm.ToolCallDelta)) func(testing.TB) backendTest {
	return editingChoice(0, func(c *choice) {
		for i := range c.Delta.ToolCalls {
			change(&c.Delta.ToolCalls[i])
		}
	})
}

// reporting returns a constructor of a Backend whose chunks all have usage u.
func reporting(u llm.Usage) func(testing.TB) backendTest {
	return editing(func(_ int, c *chunk) *chunk { c.Usage = &u; return c })
}

// chatting returns a constructor of a Backend with another Chat.
func chatting(chat func(e *echo, ctx context.Context, req *chatReq) stream) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.chat = chat })
}

// yielding returns a constructor of a Backend whose streams call f.
func yielding(f func(correct stream, yield yieldFunc)) func(testing.TB) backendTest {
	return chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		return func(yield yieldFunc) { f(e.repeat(ctx, req), yield) }
	})
}

// rewriting returns a constructor of a Backend that changes chat requests.
func rewriting(change func(req *chatReq)) func(testing.TB) backendTest {
	return chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		change(req)
		return e.repeat(ctx, req)
	})
}

// failingWith returns a constructor of a Backend whose streams fail with err if fails
// returns true.
func failingWith(err error, fails func(req *chatReq) bool) func(testing.TB) backendTest {
	return chatting(func(e *echo, ctx context.Context, req *chatReq) stream {
		if fails(req) {
			return llm.Fail(err)
		}
		return e.repeat(ctx, req)
	})
}

var errNotImplemented = errors.New("not implemented")

// unknownModel returns a constructor of a Backend that reports unknown models
// with err.
func unknownModel(err error) func(testing.TB) backendTest {
	return failingWith(err, func(req *chatReq) bool { return req.Model != "chat" })
}

// listing returns a constructor of a Backend with other models.
func listing(models ...llm.Model) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.list = func() ([]llm.Model, error) { return models, nil } })
}

// sizing returns a constructor of a Backend that allows the same image sizes for
// every model.
func sizing(sizes ...string) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.sizes = func(string) ([]string, error) { return sizes, nil } })
}

// drawing returns a constructor of a Backend with another GenerateImages.
func drawing(f func(req *imageReq) (*imageResp, error)) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.images = f })
}

// editingImage returns a constructor of a Backend that changes the first image
// of each response.
func editingImage(change func(resp *imageResp, first *llm.Image)) func(testing.TB) backendTest {
	return drawing(func(req *imageReq) (*imageResp, error) {
		resp, err := drawImages(req)
		if err == nil {
			change(resp, &resp.Data[0])
		}
		return resp, err
	})
}

// embedding returns a constructor of a Backend with another Embed.
func embedding(f func(req *vectorReq) (*vectorResp, error)) func(testing.TB) backendTest {
	return backendFixture(func(e *echo) { e.embed = f })
}

// editingVectors returns a constructor of a Backend that changes its responses
// with vectors.
func editingVectors(change func(resp *vectorResp)) func(testing.TB) backendTest {
	return embedding(func(req *vectorReq) (*vectorResp, error) {
		resp, err := countBytes(req)
		if err == nil {
			change(resp)
		}
		return resp, err
	})
}

// exclusive returns a function that calls f, but fails during another call.
func exclusive[Req, Resp any](f func(Req) (Resp, error)) func(Req) (Resp, error) {
	var mu sync.Mutex
	return func(req Req) (resp Resp, err error) {
		if !mu.TryLock() {
			return resp, llm.Errorf(429, "busy", "Busy.")
		}
		defer mu.Unlock()
		time.Sleep(time.Microsecond)
		return f(req)
	}
}

// delayed returns a function that calls f after two minutes, even if its context
// is done.
func delayed[Req, Resp any](f func(Req) (Resp, error)) func(Req) (Resp, error) {
	return func(req Req) (Resp, error) {
		time.Sleep(2 * time.Minute)
		return f(req)
	}
}

func TestBackend_ZeroAndNegative(t *testing.T) {
	for _, test := range []struct{ give, timeout, grace time.Duration }{{0, time.Minute, 5 * time.Second}, {-1, forever, forever}, {1, 1, 1}} {
		got := newBackendTest(newEcho(), BackendOptions{Timeout: test.give, Grace: test.give}).opts
		if got.Timeout != test.timeout || got.Grace != test.grace {
			t.Errorf("%v means the Timeout %v and the Grace %v, want %v and %v", test.give, got.Timeout, got.Grace, test.timeout, test.grace)
		}
	}
	opts := echoOptions
	opts.Timeout, opts.Grace = -1, -1
	TestBackend(t, newEcho(), opts)
}
