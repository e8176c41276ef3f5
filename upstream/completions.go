package upstream

import (
	"context"
	"encoding/json"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
)

var _ completion.Completer = (*Backend)(nil)

// Complete implements [completion.Completer].
func (b *Backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		r := newChatReply(yield, req.Choices())
		r.completes, r.surrogates.completes = true, true
		r.end(b.forwardCompletion(ctx, req, r))
	}
}

// forwardCompletion is forwardChat for a request to complete prompts.
func (b *Backend) forwardCompletion(ctx context.Context, req *completion.Request, r *chatReply) error {
	model := b.modelNames(req.Model)
	asked := *req
	asked.Model, asked.StreamOptions = model.server, b.streamOptions(req.Stream, req.StreamOptions)
	body, err := asked.MarshalJSON()
	if err != nil {
		return err
	}
	if r.c, err = b.startCall(ctx, b.completions, body, acceptedMedia(req.Stream), model); err != nil {
		return err
	}
	defer r.c.close()
	return r.read()
}

// takeTexts makes the texts of choices, which a ChatChunk decodes as unknown members, their content.
func takeTexts(chunk *llm.ChatChunk) {
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		raw := choice.Extra["text"]
		if raw == nil {
			continue
		}
		_ = json.Unmarshal(raw, &choice.Delta.Content) // other values than strings are no text
		if delete(choice.Extra, "text"); len(choice.Extra) == 0 {
			choice.Extra = nil
		}
	}
}
