// Package modeltest has a Backend for tests that has all operations.
package modeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"image"
	"image/png"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// The models of a [Backend].
const (
	Chat   = memory.ModelChat
	Finish = "demo-complete"
	Embed  = "demo-embed"
	Rerank = "demo-rerank"
	Judge  = "demo-moderation"
	Image  = "demo-image-small" // 256x256, 512x512, 1024x1024
	Speak  = "demo-speech"
	Hear   = "demo-transcribe"
)

// A Backend chats as a [memory.Backend], but calls the first function that a request offers, with
// empty arguments. It generates empty images, and computes vectors that depend on nothing but the
// input. The score of a document is 1 if it is the query, and else less. A text is violence if it
// contains that word. It completes prompts with their words, and speaks the words of a text as their
// bytes. The zero value is ready to use.
type Backend struct{ memory.Backend }

// New returns a new Backend with zero fields.
func New() *Backend { return &Backend{} }

// CountTokens returns the number of words of text. It can be used as [llmhttp.TokenEstimates.TextTokens].
func CountTokens(model, text string) int { return len(strings.Fields(text)) }

var (
	_ completion.Completer   = (*Backend)(nil)
	_ llmhttp.ModelLister    = (*Backend)(nil)
	_ llmhttp.ImageGenerator = (*Backend)(nil)
	_ imageedit.Editor       = (*Backend)(nil)
	_ imageedit.Streamer     = (*Backend)(nil)
	_ llmhttp.ImageStreamer  = (*Backend)(nil)
	_ llmhttp.ImageSizer     = (*Backend)(nil)
	_ llmhttp.Embedder       = (*Backend)(nil)
	_ rerank.Reranker        = (*Backend)(nil)
	_ moderation.Moderator   = (*Backend)(nil)
	_ audio.Speaker          = (*Backend)(nil)
	_ audio.Transcriber      = (*Backend)(nil)
)

// Chat implements [llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	isUsers := len(req.Messages) > 0 && req.Messages[len(req.Messages)-1].Role == llm.RoleUser
	isForbidden := req.ToolChoice != nil && req.ToolChoice.Mode == llm.ToolChoiceNone
	if req.Model != Chat || b.Script != nil || len(req.Tools) == 0 || req.Tools[0].Function == nil || !isUsers || isForbidden {
		return b.Backend.Chat(ctx, req)
	}
	calling := memory.Scripted(memory.Call("call_1", req.Tools[0].Function.Name, "{}"))
	calling.Delay = b.Delay
	return calling.Chat(ctx, req)
}

// ListModels implements [llmhttp.ModelLister].
func (b *Backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	models, err := b.Backend.ListModels(ctx)
	created := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, id := range []string{Finish, Embed, Rerank, Judge, Image, Speak, Hear} {
		models = append(models, llm.Model{ID: id, Created: created, OwnedBy: "llmhttp"})
	}
	return models, err
}

var sizes = []string{"256x256", "512x512", "1024x1024"}

// ImageSizes implements [llmhttp.ImageSizer].
func (b *Backend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	if model != Image {
		return nil, llm.ModelNotFound(model)
	}
	return slices.Clone(sizes), nil
}

// GenerateImages implements [llmhttp.ImageGenerator].
func (b *Backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	if req.Model != Image {
		return nil, llm.ModelNotFound(req.Model)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	size := req.Size
	if size == "" || size == llm.ImageSizeAuto {
		size = "1024x1024"
	}
	var width, height int
	if _, err := fmt.Sscanf(size, "%dx%d", &width, &height); err != nil || !slices.Contains(sizes, size) {
		return nil, llm.Errorf(http.StatusBadRequest, "invalid_value", "Invalid value: '%.32s'.", size).WithParam("size")
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		return nil, err
	}
	resp := &llm.ImageResponse{}
	for range req.Count() {
		resp.Data = append(resp.Data, llm.Image{Data: bytes.Clone(buf.Bytes())})
	}
	return resp, nil
}

// EditImages implements [imageedit.Editor]. It reads the files and generates images.
func (b *Backend) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	for _, file := range req.Images {
		content, err := io.ReadAll(file.Open())
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(http.DetectContentType(content), "image/") {
			return nil, llm.Errorf(http.StatusBadRequest, "invalid_value", "Invalid file format.").WithParam("image")
		}
	}
	return b.GenerateImages(ctx, &req.ImageRequest)
}

// StreamImages implements [llmhttp.ImageStreamer]. The images that are not complete are black as the
// complete one.
func (b *Backend) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return stream(req, func() (*llm.ImageResponse, error) { return b.GenerateImages(ctx, req) })
}

// StreamImageEdits implements [imageedit.Streamer], as StreamImages an ImageStreamer.
func (b *Backend) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	return stream(&req.ImageRequest, func() (*llm.ImageResponse, error) { return b.EditImages(ctx, req) })
}

// stream returns a stream of the images that draw returns.
func stream(req *llm.ImageRequest, draw func() (*llm.ImageResponse, error)) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		resp, err := draw()
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range resp.Data {
			if n := req.PartialImages; n != nil {
				for range *n {
					if !yield(&llm.ImageChunk{Image: &resp.Data[i], Partial: true}, nil) {
						return
					}
				}
			}
			if !yield(&llm.ImageChunk{Image: &resp.Data[i]}, nil) {
				return
			}
		}
	}
}

// Embed implements [llmhttp.Embedder].
func (b *Backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	if req.Model != Embed {
		return nil, llm.ModelNotFound(req.Model)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	dimensions := 8
	if req.Dimensions != nil {
		dimensions = *req.Dimensions
	}
	if dimensions < 1 || dimensions > 3072 {
		return nil, llm.Errorf(http.StatusBadRequest, "invalid_value", "Invalid value: '%d'.", dimensions).WithParam("dimensions")
	}
	resp := &llm.EmbeddingResponse{Model: req.Model, Usage: &llm.Usage{PromptTokens: req.Input.Len(), TotalTokens: req.Input.Len()}}
	for _, text := range req.Input.Texts {
		resp.Vectors = append(resp.Vectors, vector(text, dimensions))
	}
	for _, tokens := range req.Input.Tokens {
		resp.Vectors = append(resp.Vectors, vector(fmt.Sprint(tokens), dimensions))
	}
	if len(resp.Vectors) == 0 {
		return nil, errors.New("modeltest: there is no input")
	}
	return resp, nil
}

// Rerank implements [rerank.Reranker].
func (b *Backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	if req.Model != Rerank {
		return nil, llm.ModelNotFound(req.Model)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n := len(req.Documents)
	resp := &rerank.Response{Model: req.Model, Usage: &llm.Usage{PromptTokens: n, TotalTokens: n}}
	for i, d := range req.Documents {
		score := 1.0
		if d.Text != req.Query {
			score /= float64(i + 2)
		}
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: score})
	}
	return resp, nil
}

// Complete implements [completion.Completer].
func (b *Backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		if req.Model != Finish {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		usage, n := new(llm.Usage), req.Choices()/req.Prompt.Len()
		for i := range req.Choices() {
			words := []string{fmt.Sprint(req.Prompt.Tokens)}
			if req.Prompt.Texts != nil {
				words = strings.SplitAfter(req.Prompt.Texts[i/n], " ")
			}
			c := llm.ChunkChoice{Index: i, FinishReason: llm.FinishStop}
			if limit, ok := req.TokenLimit(); ok && limit < len(words) {
				words, c.FinishReason = words[:limit], llm.FinishLength
			}
			usage.CompletionTokens += len(words)
			for _, word := range words {
				piece := llm.ChunkChoice{Index: i, Delta: llm.Delta{Content: word}}
				if req.Logprobs != nil {
					piece.Extra = llm.Extra{"logprobs": json.RawMessage(`{"tokens":["x"],"token_logprobs":[-0.5],"top_logprobs":null,"text_offset":[0]}`)}
				}
				if ctx.Err() != nil {
					yield(nil, context.Cause(ctx))
					return
				}
				if !yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{piece}}, nil) {
					return
				}
			}
			if !yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{c}}, nil) {
				return
			}
		}
		usage.PromptTokens = req.Prompt.Len()
		usage.TotalTokens = usage.PromptTokens + usage.CompletionTokens
		yield(&llm.ChatChunk{Usage: usage}, nil)
	}
}

// Moderate implements [moderation.Moderator].
func (b *Backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	if req.Model != Judge {
		return nil, llm.ModelNotFound(req.Model)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	texts := req.Input.Texts
	if req.Input.Parts != nil {
		texts = []string{llm.Content(req.Input.Parts).Text()}
	}
	resp := &moderation.Response{Model: req.Model}
	for _, text := range texts {
		result := moderation.Result{Flagged: strings.Contains(text, "violence"), Scores: map[string]float64{"violence": 0}}
		if result.Flagged {
			result.Scores["violence"] = 1
		}
		result.Categories = map[string]bool{"violence": result.Flagged}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// vector returns a vector of length 1.
func vector(text string, dimensions int) []float32 {
	v := make([]float32, dimensions)
	square := 0.0
	for i := range v {
		h := fnv.New32a()
		fmt.Fprint(h, i, text)
		x := float64(h.Sum32()%1000) - 499.5
		v[i] = float32(x)
		square += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(square))
	}
	return v
}

// Transcribe implements [audio.Transcriber]. The text is the content of the file.
func (b *Backend) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		if req.Model != Hear {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		content, err := io.ReadAll(req.File.Open())
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		yield(&audio.TranscriptionChunk{Text: strings.ToValidUTF8(string(content), "."), Language: "english", Duration: 1.5}, nil)
	}
}

// Speak implements [audio.Speaker].
func (b *Backend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		if req.Model != Speak {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		for _, word := range strings.SplitAfter(req.Input, " ") {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			if word != "" && !yield(&audio.SpeechChunk{Audio: []byte(word)}, nil) {
				return
			}
		}
	}
}
