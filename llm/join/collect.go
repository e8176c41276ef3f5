package join

import (
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/llm"
)

// Collect joins the chunks of s to a reply. If s fails, Collect returns its
// error, and what came before as a reply whose unfinished choices have no
// FinishReason. A choice with more than 1024 tool calls is an error, and so is a stream
// without a chunk.
//
// The choices are in the order of their indices; those with an index of 128 or more are dropped.
// Texts are concatenated, and so are members of a Delta's Extra that are strings. Arrays in Extra
// are concatenated and objects merged; of other values the last one is kept.
func Collect(s llm.ChatStream) (*llm.ChatResponse, error) {
	j := new(Accumulator)
	o := order.Orderer{Sink: j, ChoiceLimit: bounds.Choices}
	began := false
	for chunk, err := range s {
		if err != nil {
			o.EmitHeld()
			return response(&o, j), err
		}
		began = began || chunk != nil
		if o.Add(chunk); o.Err != nil {
			return response(&o, j), o.Err
		}
	}
	o.EmitHeld()
	if !began {
		return response(&o, j), callctx.ErrNoChunk
	}
	return response(&o, j), nil
}

// response returns what j has joined, as the reply that the chunks have identified.
func response(o *order.Orderer, j *Accumulator) *llm.ChatResponse {
	r := j.Response()
	r.ID, r.Created, r.Model = o.Start.ID, o.Start.Created, o.Start.Model
	r.Usage, r.Extra = o.Usage, jsonwire.MergeExtra(r.Extra, o.EndExtra())
	return r
}
