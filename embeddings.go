// The operation that computes vectors: constants, interface, checks and descriptor.

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

var embeddingsOperation = operation{name: OperationEmbeddings, scope: ScopeEmbeddings, supportedBy: Has[Embedder], output: OutputNone}

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

var errNoVectors = errors.New("llmhttp: the number of vectors that the Backend returned is not the number of inputs")

func checkVectors(asked *llm.EmbeddingRequest, r *llm.EmbeddingResponse) error {
	switch {
	case len(r.Vectors) != asked.Input.Len():
		return errNoVectors
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

// embeddingParams returns what Observers see of r.
func embeddingParams(r *llm.EmbeddingRequest) RequestParams {
	p := RequestParams{Messages: r.Input.Len(), EncodingFormat: r.EncodingFormat}
	if r.Dimensions != nil {
		p.Dimensions = *r.Dimensions
	}
	return p
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
	return embeddingsOperation.bindCall(func(c *Call) error {
		req, encode, err := decodeBody(c.q, decode)
		if err != nil {
			return err
		}
		return serveEmbeddings(c, req, encode)
	})
}

func serveEmbeddings(c *Call, req *llm.EmbeddingRequest, encode func(b []byte, reply *llm.EmbeddingResponse) ([]byte, error)) error {
	err := c.Reserve(Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return countInput(c.q.tokenEstimator(), req) }, Params: embeddingParams(req),
	})
	if err != nil {
		return err
	}
	asked := *req // the Backend may change req
	var reply llm.EmbeddingResponse
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		resp, err := callAbility(ctx, b, Embedder.Embed, req)
		if err != nil {
			return Used{}, err
		}
		if resp == nil {
			return Used{}, errNoVectors
		}
		reply = *resp // which belongs to the Backend
		return Used{Usage: resp.Usage, Model: resp.Model, Size: vectorsSize(resp)}, checkVectors(&asked, resp)
	})
	if err != nil {
		return err
	}
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) {
		reply.Usage, reply.Model = new(c.Usage()), cmp.Or(reply.Model, asked.Model)
		return encode(b, &reply)
	})
}
