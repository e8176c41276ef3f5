package llmhttp

import (
	"iter"
)

// A ChatStream is a reply: its chunks in order, then perhaps one error.
//
// A whole reply is a stream of one chunk, so Backends need not care whether
// the client asked for streaming: the Handler splits and joins as required.
//
// A ChatStream is ranged over at most once. It runs on the goroutine of the
// loop, which makes a slow client slow it down and a departed one stop it.
// An error ends the stream; before the first chunk it becomes the HTTP
// status, after it an error event. A yielded chunk belongs to the loop.
type ChatStream = iter.Seq2[*ChatChunk, error]

// TextChunk returns a chunk that adds s to the first choice.
func TextChunk(s string) *ChatChunk {
	c := &struct {
		chunk  ChatChunk
		choice [1]ChunkChoice
	}{}
	c.choice[0].Delta.Content = s
	c.chunk.Choices = c.choice[:]
	return &c.chunk
}

// Reply returns a finished reply that says s.
func Reply(s string) ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		c := TextChunk(s)
		c.Choices[0].FinishReason = FinishStop
		yield(c, nil)
	}
}

// Fail returns a stream that only fails.
func Fail(err error) ChatStream {
	return func(yield func(*ChatChunk, error) bool) { yield(nil, err) }
}

// Stream returns r as a stream of one chunk, which shares r's memory. If r is
// as Collect returns it, [Collect] of the stream equals r.
func (r *ChatResponse) Stream() ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		c := &ChatChunk{ID: r.ID, Created: r.Created, Model: r.Model, Usage: r.Usage, Extra: r.Extra}
		c.Choices = make([]ChunkChoice, len(r.Choices))
		for i := range r.Choices {
			choice := &r.Choices[i]
			m := &choice.Message
			c.Choices[i] = ChunkChoice{
				Index:        choice.Index,
				Delta:        Delta{Role: m.Role, Content: m.Content.Text(), Reasoning: m.Reasoning, ReasoningDetails: m.ReasoningDetails, Refusal: m.Refusal, Extra: m.Extra},
				FinishReason: choice.FinishReason,
				StopSequence: choice.StopSequence,
				Extra:        choice.Extra,
			}
			for j, call := range m.ToolCalls {
				c.Choices[i].Delta.ToolCalls = append(c.Choices[i].Delta.ToolCalls,
					ToolCallDelta{Index: j, ID: call.ID, Type: call.Type, Function: call.Function, Extra: call.Extra})
			}
		}
		yield(c, nil)
	}
}

// Collect joins the chunks of s to a reply. If s fails, it returns the error,
// and what came before it as a reply whose unfinished choices have no
// FinishReason.
//
// Texts, and members of Extra that are strings within a Delta, are joined;
// arrays and objects in Extra too, element by element and member by member. Of
// other values the last counts. Choices come in the order of their indices;
// those from 128 on are dropped.
func Collect(s ChatStream) (*ChatResponse, error) {
	var j joiner
	var sh shaper
	sh.init(&j, maxChoices)
	for chunk, err := range s {
		if err != nil {
			sh.flush()
			return j.response(&sh), err
		}
		sh.add(chunk)
	}
	sh.flush()
	return j.response(&sh), nil
}
