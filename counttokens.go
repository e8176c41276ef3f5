package llmhttp

import (
	"context"
	"errors"
)

// countOperation is the operation of [BindCountTokens].
var countOperation = operation{scope: ScopeChat, drawsTokenCounts: true}

// countTokens asks the Backend for the number of prompt tokens of req, or estimates it.
func (q *request) countTokens(ctx context.Context, req *ChatRequest) (int, error) {
	n, err := q.h.backend.CountTokens(ctx, req)
	if errors.Is(err, errors.ErrUnsupported) { // also of a wrapper that is a TokenCounter
		return q.countPrompt(req), nil
	}
	return max(n, 0), err
}

// admitCount checks the model of a request that only counts tokens, and takes what the limits of
// its end user require.
func (q *request) admitCount(req *ChatRequest) error {
	if err := q.authorizeModel(req.Model); err != nil {
		return err
	}
	return q.admitUser(req.EndUser())
}

// reserveCount is ReserveChat for a request that only counts tokens.
func (q *request) reserveCount(req *ChatRequest) error {
	if err := q.admitCount(req); err != nil {
		return err
	}
	return q.askLedger(func() error { return q.ledger.takeLoad(q.client.Context()) })
}
