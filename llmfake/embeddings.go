// Embeddings: Matcher, Reply, and what the Handler calls.

package llmfake

import (
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// Embeddings returns a Matcher for requests for embeddings. Without it or the Matcher of another
// operation, such as [Images], a [Rule] is for chats only.
func Embeddings() Matcher { return operationMatcher(llmhttp.OperationEmbeddings) }

// Vectors returns a Reply to a request for embeddings: a vector for each input, in order.
func Vectors(vectors ...[]float32) Reply { return otherReply("Vectors(...)", vectors) }

// Embed implements [llmhttp.Embedder].
func (b backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	p, err := b.s.playOther(ctx, func(r *Request) { r.Asked, r.Model, r.userText = new(*req), req.Model, first(req.Input.Texts) })
	if err != nil {
		return nil, err
	}
	vectors, _ := p.other.([][]float32)
	switch {
	case p.simulated:
		asked := *req
		asked.Model = simulator.ModelEmbed
		resp, err := b.s.model.Embed(ctx, &asked)
		if err == nil {
			resp.Model = ""
		}
		return resp, err
	case vectors == nil:
		return nil, p.misfit("for embeddings")
	case len(vectors) != req.Input.Len():
		b.s.errorf("%s has %s, and its reply has %s", p.request, plural(req.Input.Len(), "input"), plural(len(vectors), "vector"))
		return nil, errUnexpectedReply()
	}
	return &llm.EmbeddingResponse{Vectors: vectors, Usage: p.usage}, nil
}
