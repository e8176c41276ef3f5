// Package choices makes several choices of a chat with a model that makes one.
package choices

import (
	"cmp"
	"context"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// A chatFunc is Chat of a Backend.
type chatFunc = func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream

// Chat returns the reply to req, of whose choices each is that of a call of chat with a copy of req for one.
func Chat(ctx context.Context, chat chatFunc, req *llm.ChatRequest) llm.ChatStream {
	n := req.Choices()
	if n <= 1 {
		return chat(ctx, req)
	}
	return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
		var used llm.Usage // by the calls so far
		for i := range n {
			one := req.Clone()
			one.N = nil
			if err := sendChoice(ctx, chat, one, i, n, &used, send); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// sendChoice makes choice i of n by a call with req. It adds what the call has used to used.
func sendChoice(
	ctx context.Context, chat chatFunc, req *llm.ChatRequest, i, n int, used *llm.Usage, send func(*llm.ChatChunk) error,
) (err error) {
	ctx, end := llm.StartCall(ctx, req.Model)
	var call llm.CallResult
	defer func() {
		call.Err = err
		end(call)
		used.Add(call.Usage)
	}()
	s := chat(ctx, req)
	if s == nil {
		return callctx.ErrNilStream
	}
	began := false
	for c, err := range s {
		if err != nil {
			return err
		}
		if began = true; c != nil {
			for k := range c.Choices {
				if choice := &c.Choices[k]; choice.Index == 0 {
					choice.Index = i
				} else {
					choice.Index = n // was not asked for, which the Handler logs
				}
			}
			noteCall(&call, c)
			if c.Usage != nil {
				sum := *c.Usage
				sum.Add(used)
				c.Usage = &sum
			}
		}
		if err := send(c); err != nil {
			return err
		}
	}
	if !began {
		return callctx.ErrNoChunk
	}
	return nil
}

// noteCall notes what c says of the call that it is a part of.
func noteCall(call *llm.CallResult, c *llm.ChatChunk) {
	call.Model = cmp.Or(c.Model, call.Model)
	call.ServiceTier = cmp.Or(jsonwire.Text(c.Extra["service_tier"]), call.ServiceTier)
	if c.Usage != nil {
		call.Usage = c.Usage
	}
}
