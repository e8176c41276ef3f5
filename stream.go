package llmhttp

import "iter"

// A ChatStream is the reply to a chat request: its chunks in order, and then at
// most one error. A whole reply is a stream of one chunk: the Handler joins or
// streams the chunks as the client asked.
//
// A ChatStream is iterated over at most once. It runs on the goroutine of the
// loop: yield returns when the chunk is on its way to the client, so a slow
// client slows the stream down, and returns false when the client has left or
// the request has ended for another reason. The Backend must then return.
// Yield may be called from another goroutine than that of the stream's function,
// but not from several at the same time, nor after the function has returned.
//
// An error ends the stream; a chunk that is yielded together with an error is
// dropped. Before the first chunk an error becomes the HTTP status of the reply,
// unless the Backend was silent for so long that the stream has begun: see
// Options.KeepAlive and Route.StartsEarly. Later it is an error event. A chunk that was yielded belongs to the loop.
type ChatStream = iter.Seq2[*ChatChunk, error]

// TextChunk returns a chunk that adds s to the first choice.
func TextChunk(s string) *ChatChunk {
	return &ChatChunk{Choices: []ChunkChoice{{Delta: Delta{Content: s}}}}
}

// Reply returns a complete reply with the text s.
func Reply(s string) ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		c := TextChunk(s)
		c.Choices[0].FinishReason = FinishStop
		yield(c, nil)
	}
}

// Fail returns a stream that fails with err.
func Fail(err error) ChatStream {
	return func(yield func(*ChatChunk, error) bool) { yield(nil, err) }
}

// Stream returns r as a stream of one chunk, which shares the memory of r. If r
// was returned by [Collect], Collect of the stream returns an equal response.
func (r *ChatResponse) Stream() ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		c := &ChatChunk{ID: r.ID, Created: r.Created, Model: r.Model, Usage: r.Usage, Extra: r.Extra}
		for i := range r.Choices {
			c.Choices = append(c.Choices, r.Choices[i].chunk())
		}
		yield(c, nil)
	}
}

// chunk returns the choice as a choice of a chunk.
func (c *Choice) chunk() ChunkChoice {
	m := &c.Message
	out := ChunkChoice{
		Index: c.Index,
		Delta: Delta{
			Role: m.Role, Content: m.Content.Text(), Reasoning: m.Reasoning, ReasoningDetails: m.ReasoningDetails,
			Refusal: m.Refusal, Extra: m.Extra,
		},
		FinishReason: c.FinishReason,
		StopSequence: c.StopSequence,
		Extra:        c.Extra,
	}
	for i, call := range m.ToolCalls {
		out.Delta.ToolCalls = append(out.Delta.ToolCalls,
			ToolCallDelta{Index: i, ID: call.ID, Type: call.Type, Function: call.Function, Extra: call.Extra})
	}
	return out
}

// Collect joins the chunks of s to a reply. If s fails, Collect returns its
// error, and what came before as a reply whose unfinished choices have no
// FinishReason. A choice with more than 1024 tool calls is an error.
//
// The choices are in the order of their indices; those with an index of 128 or
// more are dropped. Texts are concatenated, and so are members of a Delta's
// Extra that are strings. Arrays in Extra are concatenated and objects merged;
// of other values the last one is kept.
func Collect(s ChatStream) (*ChatResponse, error) {
	j := new(joiner)
	o := orderer{sink: j, choiceLimit: maxChoices}
	for chunk, err := range s {
		if err != nil {
			o.emitHeld()
			return j.response(&o), err
		}
		if o.add(chunk); o.err != nil {
			return j.response(&o), o.err
		}
	}
	o.emitHeld()
	return j.response(&o), nil
}
