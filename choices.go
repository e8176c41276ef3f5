package llmhttp

import (
	"cmp"
	"context"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// Choices returns a Backend whose chats have as many choices as the request asks for, by [llm.ChatRequest.N],
// of a Backend that makes one and need not look at N. For each choice it calls b with a copy of the request
// without N. Requests for one choice are passed on as they are. Everything else that b can do passes:
// see [As].
//
// The calls are made in turn: choice 0 is complete before choice 1 begins, all chunks are yielded on one
// goroutine, and b has no more calls at the same time than it has requests. An error of one call ends the
// reply, without further calls. Each is a call of its own ([llm.StartCall]), so the prompt counts once for
// each choice. What a request asks for beside N is the same in each call: with a seed, for example, a
// model makes the same choice several times.
//
// Choices panics if b is nil.
func Choices(b Backend) Backend {
	if option.IsNil(b) {
		panic("llmhttp: Choices of a nil Backend")
	}
	return choiceMaker{b}
}

// A choiceMaker is the Backend that Choices returns.
type choiceMaker struct{ Backend }

// Unwrap returns the Backend for [As].
func (b choiceMaker) Unwrap(context.Context) Backend { return b.Backend }

func (b choiceMaker) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	n := req.Choices()
	if n <= 1 {
		return b.Backend.Chat(ctx, req)
	}
	return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
		var used llm.Usage // by the calls so far
		for i := range n {
			one := req.Clone()
			one.N = nil
			if err := b.sendChoice(ctx, one, i, n, &used, send); err != nil {
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
func (b choiceMaker) sendChoice(ctx context.Context, req *llm.ChatRequest, i, n int, used *llm.Usage, send func(*llm.ChatChunk) error) (err error) {
	ctx, end := llm.StartCall(ctx, req.Model)
	var call llm.CallResult
	defer func() {
		call.Err = err
		end(call)
		used.Add(call.Usage)
	}()
	s := b.Backend.Chat(ctx, req)
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
