// Requests to rerank: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/rerank"
)

// Rerank returns a Matcher for requests to rerank documents: see [Embeddings].
func Rerank() Matcher { return operationMatcher(rerank.Operation) }

// Scores returns a Reply to a request to rerank documents: a score for each document, in order.
func Scores(scores ...float64) Reply { return otherReply("Scores(...)", scores) }

// Rerank implements [rerank.Reranker].
func (b backend) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	p, err := b.s.playOther(ctx, func(r *Request) { r.Asked, r.Model, r.userText = new(*req), req.Model, req.Query })
	if err != nil {
		return nil, err
	}
	scores, _ := p.other.([]float64)
	switch {
	case p.simulated:
		asked := *req
		asked.Model = simulator.ModelRerank
		resp, err := b.s.model.Rerank(ctx, &asked)
		if err == nil {
			resp.Model = ""
		}
		return resp, err
	case scores == nil:
		return nil, p.misfit("to rerank")
	case len(scores) != len(req.Documents):
		b.s.errorf("%s has %s, and its reply has %s", p.request, plural(len(req.Documents), "document"), plural(len(scores), "score"))
		return nil, errUnexpectedReply()
	}
	resp := &rerank.Response{Usage: p.usage}
	for i, score := range scores {
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: score})
	}
	return resp, nil
}
