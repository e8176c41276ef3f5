package llmhttp

import "context"

// Choices returns a Backend whose chats have as many choices as the request asks for, by [ChatRequest.N],
// of a Backend that makes one and need not look at N. For each choice it calls b with a copy of the request
// without N. Requests for one choice are passed on as they are, and so are the calls of the optional
// interfaces of a Backend, as by a [Forwarder].
//
// The calls are made in turn: choice 0 is complete before choice 1 begins, all chunks are yielded on one
// goroutine, and b has no more calls at the same time than it has requests. An error of one call ends the
// reply, without further calls. The usage of the reply is the sum of the calls, as they have yielded it or
// passed it to [ReportUsage]; so the prompt counts once for each choice. What a request asks for beside N is
// the same in each call: with a seed, for example, a model makes the same choice several times.
//
// Choices panics if b is nil.
func Choices(b Backend) Backend {
	if isNil(b) {
		panic("llmhttp: Choices of a nil Backend")
	}
	return choiceMaker{Forwarder{b}}
}

// A choiceMaker is the Backend that Choices returns.
type choiceMaker struct{ Forwarder }

func (b choiceMaker) Chat(ctx context.Context, req *ChatRequest) ChatStream {
	n := req.Choices()
	if n <= 1 {
		return b.Backend.Chat(ctx, req)
	}
	return NewStream(func(send func(*ChatChunk) error) error {
		var used Usage // by the calls so far
		for i := range n {
			callCtx, report := relayUsage(ctx, used)
			one := req.Clone()
			one.N = nil
			if err := sendChoice(b.Backend.Chat(callCtx, one), i, n, used, report, send); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if u := report.get(); u != nil {
				used = *u
			}
		}
		return nil
	})
}

// sendChoice sends the chunks of s, whose choice 0 is choice i of n. used is the usage of the calls before.
// report gets the sum.
func sendChoice(s ChatStream, i, n int, used Usage, report *usageReport, send func(*ChatChunk) error) error {
	if s == nil {
		return errNilStream
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
			if c.Usage != nil {
				sum := *c.Usage
				sum.Add(&used)
				c.Usage = &sum
				report.set(&sum)
			}
		}
		if err := send(c); err != nil {
			return err
		}
	}
	if !began {
		return errNoChunk
	}
	return nil
}
