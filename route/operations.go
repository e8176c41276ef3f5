// The methods of a Router, and what is sent to a target for each operation.

package route

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// The operations that a Router distributes: see oneShot and streaming. Each method of a Router calls one.
var (
	chat = &streaming[llm.ChatRequest, llm.ChatChunk]{
		name:       llmhttp.OperationChat,
		model:      func(r *llm.ChatRequest) *string { return &r.Model },
		clone:      (*llm.ChatRequest).Clone,
		call:       func(ctx context.Context, b llmhttp.Backend, r *llm.ChatRequest) llm.ChatStream { return b.Chat(ctx, r) },
		hasContent: (*llm.ChatChunk).HasContent,
		setModel:   func(c *llm.ChatChunk, model string) { c.Model = model },
	}
	completions = &streaming[completion.Request, llm.ChatChunk]{
		name:       completion.Operation,
		model:      func(r *completion.Request) *string { return &r.Model },
		clone:      deepcopy.Of[completion.Request],
		call:       ability.Stream(completion.Completer.Complete),
		hasContent: (*llm.ChatChunk).HasContent,
		setModel:   func(c *llm.ChatChunk, model string) { c.Model = model },
	}
	embeddings = &oneShot[llm.EmbeddingRequest, llm.EmbeddingResponse]{
		name:   llmhttp.OperationEmbeddings,
		model:  func(r *llm.EmbeddingRequest) *string { return &r.Model },
		call:   ability.Call(llmhttp.Embedder.Embed),
		served: func(r *llm.EmbeddingResponse) *string { return &r.Model },
	}
	images = &oneShot[llm.ImageRequest, llm.ImageResponse]{
		name:  llmhttp.OperationImages,
		model: func(r *llm.ImageRequest) *string { return &r.Model },
		call:  ability.Call(llmhttp.ImageGenerator.GenerateImages),
	}
	imageStreams = newImageStreams(images, llmhttp.StreamImages)
	imageEdits   = &oneShot[imageedit.Request, llm.ImageResponse]{
		name:  imageedit.Operation,
		model: func(r *imageedit.Request) *string { return &r.Model },
		call:  ability.Call(imageedit.Editor.EditImages),
	}
	imageEditStreams = newImageStreams(imageEdits, imageedit.Stream)
	speech           = &streaming[audio.SpeechRequest, audio.SpeechChunk]{
		name:       audio.OperationSpeech,
		model:      func(r *audio.SpeechRequest) *string { return &r.Model },
		clone:      deepcopy.Of[audio.SpeechRequest],
		call:       ability.Stream(audio.Speaker.Speak),
		hasContent: func(c *audio.SpeechChunk) bool { return len(c.Audio) > 0 },
	}
	transcriptions = &streaming[audio.TranscriptionRequest, audio.TranscriptionChunk]{
		name:       audio.OperationTranscriptions,
		model:      func(r *audio.TranscriptionRequest) *string { return &r.Model },
		clone:      (*audio.TranscriptionRequest).Clone,
		call:       ability.Stream(audio.Transcriber.Transcribe),
		hasContent: func(c *audio.TranscriptionChunk) bool { return c.Text != "" || len(c.Segments) > 0 },
	}
	reranking = &oneShot[rerank.Request, rerank.Response]{
		name:   rerank.Operation,
		model:  func(r *rerank.Request) *string { return &r.Model },
		call:   ability.Call(rerank.Reranker.Rerank),
		served: func(r *rerank.Response) *string { return &r.Model },
	}
	moderations = &oneShot[moderation.Request, moderation.Response]{
		name:   moderation.Operation,
		model:  func(r *moderation.Request) *string { return &r.Model },
		call:   ability.Call(moderation.Moderator.Moderate),
		served: func(r *moderation.Response) *string { return &r.Model },
	}
)

var (
	_ llmhttp.Embedder       = (*Router)(nil)
	_ llmhttp.ImageGenerator = (*Router)(nil)
	_ llmhttp.ImageStreamer  = (*Router)(nil)
	_ completion.Completer   = (*Router)(nil)
	_ imageedit.Editor       = (*Router)(nil)
	_ imageedit.Streamer     = (*Router)(nil)
	_ audio.Speaker          = (*Router)(nil)
	_ audio.Transcriber      = (*Router)(nil)
	_ rerank.Reranker        = (*Router)(nil)
	_ moderation.Moderator   = (*Router)(nil)
)

// newImageStreams returns the operation op for requests whose client wants a stream, which call returns.
func newImageStreams[Req any](
	op *oneShot[Req, llm.ImageResponse],
	call func(context.Context, llmhttp.Backend, *Req) llm.ImageStream,
) *streaming[Req, llm.ImageChunk] {
	return &streaming[Req, llm.ImageChunk]{
		name:       op.name,
		model:      op.model,
		clone:      deepcopy.Of[Req],
		call:       call,
		hasContent: func(c *llm.ImageChunk) bool { return c.Image != nil },
	}
}

// Each try gets a copy of the request, which the target may change, and reads the files of requests from
// their start.

// Chat implements [llmhttp.Backend].
func (r *Router) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return chat.serve(ctx, r, req)
}

// Complete implements [completion.Completer].
func (r *Router) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return completions.serve(ctx, r, req)
}

// Embed implements [llmhttp.Embedder].
func (r *Router) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return embeddings.serve(ctx, r, req)
}

// GenerateImages implements [llmhttp.ImageGenerator].
func (r *Router) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return images.serve(ctx, r, req)
}

// StreamImages implements [llmhttp.ImageStreamer]. Another target is tried until the first image, also one
// that is not complete.
func (r *Router) StreamImages(ctx context.Context, req *llm.ImageRequest) llm.ImageStream {
	return imageStreams.serve(ctx, r, req)
}

// EditImages implements [imageedit.Editor].
func (r *Router) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	return imageEdits.serve(ctx, r, req)
}

// StreamImageEdits implements [imageedit.Streamer], as StreamImages an ImageStreamer.
func (r *Router) StreamImageEdits(ctx context.Context, req *imageedit.Request) llm.ImageStream {
	return imageEditStreams.serve(ctx, r, req)
}

// Speak implements [audio.Speaker]. No other target is tried when audio has reached the client.
func (r *Router) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return speech.serve(ctx, r, req)
}

// Transcribe implements [audio.Transcriber].
func (r *Router) Transcribe(ctx context.Context, req *audio.TranscriptionRequest) audio.TranscriptionStream {
	return transcriptions.serve(ctx, r, req)
}

// Rerank implements [rerank.Reranker].
func (r *Router) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	return reranking.serve(ctx, r, req)
}

// Moderate implements [moderation.Moderator].
func (r *Router) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	return moderations.serve(ctx, r, req)
}
