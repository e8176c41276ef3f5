// Package simulator simulates a model. It is what a server of package llmfake replies with until a
// test sets another reply, and a Backend for demonstrations:
//
//	h := llmhttp.NewHandler(simulator.New(), llmhttp.AllowAll("demo"), &llmhttp.Options{Routes: all.Routes(nil)})
package simulator

import (
	"context"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
	"github.com/llmhttp/llmhttp/moderation"
)

// The models of a [Backend], besides [ModelRerank].
const (
	ModelChat       = "demo-chat"
	ModelComplete   = "demo-complete"
	ModelEmbed      = "demo-embed"
	ModelModeration = "demo-moderation"
	ModelTranscribe = "demo-transcribe"
	ModelImageLarge = "demo-image-large" // 1024x1024, 1024x1792, 1792x1024
	ModelImageSmall = "demo-image-small" // 256x256, 512x512, 1024x1024
	ModelSpeech     = "demo-speech"      // mp3, wav, pcm
)

// A Backend is a [llmhttp.Backend] that simulates a model. It is deterministic: the same request
// gets the same reply, except for the IDs of tool calls. The zero value is ready to use. The fields
// must not be changed while the Backend is in use. Its methods are safe for concurrent use.
//
// # Chat
//
// The reply is the text of the last user message, unchanged, or a greeting if there is none. Each
// chunk has one token; see [CountTokens] for what a token is. All choices have the same reply, and
// their chunks alternate. The parameters of the request apply in this order:
//
//   - Reasoning. If reasoning_effort is set and not none, the reply begins with
//     reasoning and its signature. If the client returns reasoning that does not
//     match its signature by a Backend, the reply is a 400.
//   - Tools. If tool_choice requires a call, or if it allows one and the last
//     message is the user's, the reply is a call. It calls the function that
//     tool_choice names, or else the first one, with arguments that satisfy
//     its schema. If parallel_tool_calls is true, it calls all functions, and
//     their arguments alternate. If there are results of tools since the
//     assistant's last message, the reply is a text with them, unless a call is
//     required. Tools other than functions are ignored.
//   - Response format. For json_object, the reply is an object with the text
//     as "reply". For json_schema, and for json_object with a member schema, it
//     is a value that satisfies the schema and has the text in its strings where
//     the schema allows that.
//   - Stop sequences. The reply ends before the first stop sequence, in JSON
//     too. They do not apply to tool calls.
//   - Token limit. Texts, JSON and the arguments of tool calls are cut after
//     that many tokens, as a model would cut them. Reasoning is not cut.
//
// The reply to a schema that Backend cannot satisfy is an error with status 400
// that names the keyword. The text of all choices together is cut at 32 MiB.
//
// The usage is exact. Prompt tokens are counted in the text, the reasoning and
// the arguments of the tool calls of each message, and in the name, the description and the parameters of each tool. Completion tokens are counted in
// the reasoning and in the text or arguments of each choice. [Backend.CountTokens] counts a
// prompt in the same way.
//
// # Completions
//
// A prompt is continued with itself, after a space, up to the suffix if that is in it, or up to a stop
// sequence. Token numbers are words. Without a limit, there are 16 tokens. Each token is certain: its
// log probability is 0.
//
// # Images
//
// An image is a PNG of discs over a gradient that depend on the prompt and on the index of the
// image, and for an edit on the files, which must be images. The size auto, which is the default, is
// 1024x1024. The quality hd has more discs. An image that is not complete has fewer. There is no
// usage.
//
// # Embeddings
//
// A vector depends on the words of the input and on their parts, so that texts
// with common words have similar vectors. Token numbers count as words. Vectors
// have length 1 and 256 dimensions; a request may ask for up to 3072.
//
// # Moderations
//
// The categories are those of OpenAI. A text belongs to a category if it contains the words of its
// name: "hate" to hate, and "sexual" and "minors" to sexual/minors. Images are harmless.
//
// # Speech
//
// Each word is a chunk: a tone of 192 milliseconds, at the speed 1, that depends on the word and on
// the name of the voice, which may be any. MP3 is silent, and there are no other formats than mp3,
// wav and pcm. The usage has a token for each 24 milliseconds.
//
// # Transcriptions
//
// The text tells the name and the size of the recording. Its time is that of an MP3 of that size with
// 128 kbit/s. There are segments and words, and the usage is in tokens. A file whose extension or
// type is none of a recording gets a 400.
type Backend struct {
	// Delay is the time that Chat, Complete, Speak, StreamImages and StreamImageEdits wait before each chunk. Zero and negative mean
	// no delay.
	Delay time.Duration
}

var (
	_ llmhttp.Backend        = (*Backend)(nil)
	_ completion.Completer   = (*Backend)(nil)
	_ llmhttp.ModelLister    = (*Backend)(nil)
	_ llmhttp.ImageGenerator = (*Backend)(nil)
	_ llmhttp.ImageStreamer  = (*Backend)(nil)
	_ llmhttp.ImageSizer     = (*Backend)(nil)
	_ llmhttp.Embedder       = (*Backend)(nil)
	_ moderation.Moderator   = (*Backend)(nil)
	_ audio.Speaker          = (*Backend)(nil)
	_ llmhttp.TokenCounter   = (*Backend)(nil)
	_ audio.Transcriber      = (*Backend)(nil)
)

// New returns a new Backend with zero fields.
func New() *Backend { return &Backend{} }

// Chat implements [llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		s := &sender{modelreply.Sender[*llm.ChatChunk]{Ctx: ctx, Delay: b.Delay, Yield: yield}}
		if req.Model != ModelChat {
			yield(nil, llm.ModelNotFound(req.Model))
			return
		}
		r, err := newReply(req)
		if err != nil {
			yield(nil, err)
			return
		}
		s.sendReply(r)
	}
}

// CountTokens implements [llmhttp.TokenCounter]. It returns the prompt tokens of the usage
// that Chat reports.
func (b *Backend) CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	if req.Model != ModelChat {
		return 0, llm.ModelNotFound(req.Model)
	}
	return promptTokens(req), nil
}

// ListModels implements [llmhttp.ModelLister]. The context window and the output limit of the
// chat model are for clients that ask for them. Chat does not enforce them.
func (b *Backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	models := []llm.Model{
		{
			ID: ModelChat, DisplayName: "Demo chat", ContextWindow: 128_000, OutputLimit: 32_000,
			Capabilities: []llm.Capability{llm.CapabilityTools, llm.CapabilityThinking},
		},
		{ID: ModelComplete, DisplayName: "Demo completions", Capabilities: []llm.Capability{}},
		{ID: ModelEmbed, DisplayName: "Demo embeddings", Capabilities: []llm.Capability{llm.CapabilityEmbedding}},
		{ID: ModelRerank, DisplayName: "Demo rerank", Capabilities: []llm.Capability{}},
		{ID: ModelModeration, DisplayName: "Demo moderations", Capabilities: []llm.Capability{}},
		{ID: ModelTranscribe, DisplayName: "Demo transcriptions", Capabilities: []llm.Capability{}},
		{ID: ModelImageLarge, DisplayName: "Demo images, large", Capabilities: []llm.Capability{}},
		{ID: ModelImageSmall, DisplayName: "Demo images, small", Capabilities: []llm.Capability{}},
		{ID: ModelSpeech, DisplayName: "Demo speech", Capabilities: []llm.Capability{}},
	}
	for i := range models {
		models[i].Created = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
		models[i].OwnedBy = "llmhttp"
	}
	return models, nil
}

// A sender yields the chunks of one reply.
type sender struct {
	modelreply.Sender[*llm.ChatChunk]
}

// newChunk returns a chunk with one choice.
func newChunk(choice llm.ChunkChoice) *llm.ChatChunk {
	return &llm.ChatChunk{Choices: []llm.ChunkChoice{choice}}
}
