package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationEmbeddings is the [Operation] of computing vectors.
const OperationEmbeddings Operation = "embeddings"

// ScopeEmbeddings is the [Scope] of vectors.
const ScopeEmbeddings Scope = "embeddings"

// An Embedder is a [Backend] that computes embedding vectors.
type Embedder interface {
	// Embed returns one vector for each input of req, in the order of the inputs. A nil vector is
	// an error. The Embedder owns req.
	Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error)
}

var embeddingsOperation = &oneShot[llm.EmbeddingRequest, llm.EmbeddingResponse]{
	modelCall: modelCall[llm.EmbeddingRequest]{
		operation: operation{name: OperationEmbeddings, scope: ScopeEmbeddings, supportedBy: has[Embedder], output: outputNone},
		model:     func(r *llm.EmbeddingRequest) string { return r.Model },
		describer: func(r *llm.EmbeddingRequest) describer { return embeddingDescriber{r} },
		user:      (*llm.EmbeddingRequest).EndUser,
		prompt:    func(c tokens.Estimator, r *llm.EmbeddingRequest) int { return countInput(c, r) },
	},
	call: func(ctx context.Context, b Backend, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
		return callAbility(ctx, b, Embedder.Embed, r)
	},
	facts: func(r *llm.EmbeddingResponse) replyFacts { return replyFacts{usage: r.Usage, model: r.Model} },
	check: checkVectors,
	size:  vectorsSize,
	completeReply: func(r *llm.EmbeddingResponse, record *UsageRecord, usage *llm.Usage) {
		r.Usage, r.Model = usage, cmp.Or(r.Model, record.Model)
	},
}

// decodeEmbeddings decodes POST /v1/embeddings.
func decodeEmbeddings(
	ctx context.Context,
	_ *http.Request,
	body []byte,
) (*llm.EmbeddingRequest, func(b []byte, r *llm.EmbeddingResponse) ([]byte, error), error) {
	req := new(llm.EmbeddingRequest)
	if err := decodeChecked(ctx, body, embeddingRequestJSON, req, &req.Extra); err != nil {
		return nil, nil, err
	}
	format := req.EncodingFormat
	return req, func(b []byte, r *llm.EmbeddingResponse) ([]byte, error) {
		return r.AppendJSON(b, format)
	}, nil
}

func checkVectors(asked *llm.EmbeddingRequest, r *llm.EmbeddingResponse) error {
	switch {
	case r == nil || len(r.Vectors) != asked.Input.Len():
		return errors.New("llmhttp: the number of vectors that the Backend returned is not the number of inputs")
	case slices.ContainsFunc(r.Vectors, func(v []float32) bool { return v == nil }):
		return errors.New("llmhttp: the Backend returned a nil vector")
	}
	return nil
}

func vectorsSize(r *llm.EmbeddingResponse) int {
	n := jsonwire.ExtraSize(r.Extra)
	for _, v := range r.Vectors {
		n += texts.ElementSize + 4*len(v)
	}
	return n
}

type embeddingDescriber struct{ *llm.EmbeddingRequest }

func (r embeddingDescriber) describe(d *description) {
	p := &d.params
	p.Messages, p.EncodingFormat = r.Input.Len(), r.EncodingFormat
	if r.Dimensions != nil {
		p.Dimensions = *r.Dimensions
	}
}

// countInput counts the tokens of an embedding request.
func countInput(c tokens.Estimator, r *llm.EmbeddingRequest) int {
	n := c.Label(r.Model) + c.Label(r.EncodingFormat) + c.Extra(r.Extra)
	for _, text := range r.Input.Texts {
		n += c.Text(text)
	}
	for _, tokens := range r.Input.Tokens {
		n += len(tokens)
	}
	return n
}

// BindEmbeddings binds a route to embeddings, with [ScopeEmbeddings]. decode checks the
// request by [llm.EmbeddingRequest.Validate]. The reply that encode gets has a vector for each
// input, a Model, and the usage that is recorded. If the Backend is no [Embedder], the
// client gets a 404. See "Protocols" in the package documentation.
func BindEmbeddings(decode func(ctx context.Context, r *http.Request, body []byte) (
	req *llm.EmbeddingRequest, encode func(b []byte, reply *llm.EmbeddingResponse) ([]byte, error), err error)) Binding {
	mustBeSet(decode != nil)
	return bindOneShot(embeddingsOperation, decode)
}
