// The operation that counts the tokens of a prompt.

package llmhttp

import (
	"context"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/unsupported"
	"github.com/llmhttp/llmhttp/llm"
)

// A TokenCounter is a [Backend] that can count the tokens of a prompt. Protocols with a token
// counting endpoint use it.
type TokenCounter interface {
	// CountTokens returns the number of prompt tokens of req: messages, tools and images. It does
	// not change req.
	CountTokens(ctx context.Context, req *llm.ChatRequest) (int, error)
}

// countOperation is the operation of [BindCountTokens].
var countOperation = operation{scope: ScopeChat, drawsTokenCounts: true}

// countTokens asks the Backend for the number of prompt tokens of req, or estimates it.
func (q *request) countTokens(ctx context.Context, req *llm.ChatRequest) (int, error) {
	n, err := callAbility(ctx, q.h.backend, TokenCounter.CountTokens, req)
	if unsupported.Is(err) { // also of a wrapper that is a TokenCounter
		return q.countPrompt(generation{ChatRequest: req}), nil
	}
	return max(n, 0), err
}

// admitCount checks the model of a request that only counts tokens, and takes what the limits of
// its end user require.
func (q *request) admitCount(req *llm.ChatRequest) error {
	if err := q.authorizeModel(req.Model); err != nil {
		return err
	}
	return q.admitUser(req.EndUser())
}

// reserveCount is ReserveChat for a request that only counts tokens.
func (q *request) reserveCount(req *llm.ChatRequest) error {
	if err := q.admitCount(req); err != nil {
		return err
	}
	return q.askLedger(func() error { return q.ledger.takeLoad(q.client.Context()) })
}

// BindCountTokens binds a route to the count of the tokens of a prompt, with [ScopeChat].
// The Backend counts if it is a [TokenCounter]; if not, the count is the estimate that
// limits use, with Options.Estimates.TextTokens if that is set. decode need not call
// [llm.ChatRequest.Validate], as a prompt may be counted that is not complete.
//
// The request is not recorded as usage. It takes from [BucketTokenCounts] and not from
// BucketRequests, except if decode calls [ReserveChat]: then it takes from both. See
// "Protocols" in the package documentation.
func BindCountTokens(decode func(ctx context.Context, r *http.Request, body []byte) (
	req *llm.ChatRequest, encode func(b []byte, tokens int) ([]byte, error), err error)) Binding {
	mustBeSet(decode != nil)
	return countOperation.bindCall(func(c *Call) error {
		req, encode, err := decodeBody(c.q, decode)
		if err != nil {
			return err
		}
		if err := c.q.admitCount(req); err != nil {
			return err
		}
		var n int
		err = c.Check(func(ctx context.Context, _ Backend) (err error) {
			n, err = c.q.countTokens(ctx, req)
			return err
		})
		if err != nil {
			return err
		}
		return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) { return encode(b, n) })
	})
}
