package upstream

import (
	"context"
	"encoding/json"

	"github.com/llmhttp/llmhttp"
)

// Complete implements [llmhttp.Completer].
func (b *Backend) Complete(ctx context.Context, req *llmhttp.CompletionRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		if err := b.forwardCompletion(ctx, req, yield); err != nil {
			yield(nil, err)
		}
	}
}

// forwardCompletion is forwardChat for a request to complete prompts.
func (b *Backend) forwardCompletion(
	ctx context.Context,
	req *llmhttp.CompletionRequest,
	yield func(*llmhttp.ChatChunk, error) bool,
) error {
	model := b.modelNames(req.Model)
	r := *req
	r.Model, r.StreamOptions = model.server, b.streamOptions(req.Stream, req.StreamOptions)
	body, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	c, err := b.startCall(ctx, b.completions, body, acceptedMedia(req.Stream), model)
	if err != nil {
		return err
	}
	defer c.close()
	reply := chatReply{c: c, yield: yield, choices: newChoices(req.Choices()), completes: true}
	reply.pattern.member, reply.surrogates.completes = `"text"`, true
	return reply.forwardAll()
}

// takeTexts makes the texts of choices, which a ChatChunk decodes as unknown members, their content.
func takeTexts(chunk *llmhttp.ChatChunk) {
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
