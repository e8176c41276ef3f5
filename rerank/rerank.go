// Package rerank serves the ordering of documents by their relevance to a query, which OpenAI's API does
// not have. The API is the union of those of Jina and Cohere, and that of vLLM and llama.cpp.
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Routes: rerank.Routes()})
//
// The Handler then serves POST /v1/rerank, POST /v2/rerank and POST /rerank, if [llmhttp.As] finds a
// [Reranker] in the Backend. Otherwise clients get a 404. It checks the results, puts them into order, and
// adds the documents that a client asks for. A key needs the scope "rerank", unless its Scopes are nil. The
// usage is in tokens and in search units, and is estimated if the Backend does not tell it.
package rerank

import (
	"cmp"
	"context"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/llm"
)

// Operation is the [llmhttp.Operation] of ordering documents by their relevance to a query.
const Operation llmhttp.Operation = "rerank"

// Scope is the [llmhttp.Scope] of ordering documents by their relevance to a query.
const Scope llmhttp.Scope = "rerank"

// A Reranker is a [llmhttp.Backend] that orders documents by their relevance to a query.
type Reranker interface {
	// Rerank returns a score for each document of req, or for the TopN that are most relevant,
	// in any order. Clients compare scores with thresholds from 0 to 1, so a model whose scores
	// are logits needs a sigmoid function. The Reranker owns req, except the bytes of Raw in its
	// documents. It is called concurrently.
	Rerank(ctx context.Context, req *Request) (*Response, error)
}

// Endpoint is what the routes of this package are made of, for Protocols with routes of their own: see
// [Serve]. It must not be changed.
var Endpoint = &llmhttp.Endpoint{
	Operation: Operation, Scope: Scope, Supported: llmhttp.Has[Reranker], Output: llmhttp.OutputNone,
}

func init() { endpoints.Register(string(Operation), Endpoint.Supported) }

// Routes returns new Routes for Options.Routes. Cohere's SDK needs that of /v2/rerank.
func Routes() []llmhttp.Route {
	return []llmhttp.Route{
		llmhttp.NewRoute("POST /v1/rerank", Endpoint, serve),
		llmhttp.NewRoute("POST /v2/rerank", Endpoint, serve),
		llmhttp.NewRoute("POST /rerank", Endpoint, serve),
	}
}

func serve(c *llmhttp.Call) error {
	req := new(Request)
	if err := wire.Decode(c, requestJSON, req, &req.Extra); err != nil {
		return err
	}
	return Serve(c, req, responseJSON.Append)
}

// Serve serves a request that another wire format has, for the function of a route that a Protocol makes
// of [Endpoint] with [llmhttp.NewRoute]. That function reads the Body of c into a Request and checks it
// by [Request.Validate]; Serve, which then owns req, calls Reserve, Ask and Reply.
//
// appendReply appends the reply to b. The reply that it gets is complete, with the usage that is recorded,
// and its results are in order. It is only valid during the call.
func Serve(c *llmhttp.Call, req *Request, appendReply func(b []byte, reply *Response) ([]byte, error)) error {
	units := req.searchUnits()
	err := c.Reserve(llmhttp.Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return req.countTokens(wire.Estimator(c, req.Model)) },
		Units: &llmhttp.Units{SearchUnits: units}, Params: llmhttp.RequestParams{Messages: len(req.Documents)},
	})
	if err != nil {
		return err
	}
	asked := *req // the Backend may change req, and its documents
	req.Documents = slices.Clone(req.Documents)
	var reply Response
	err = c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		resp, err := ability.Call(Reranker.Rerank)(ctx, b, req)
		if err != nil {
			return llmhttp.Used{}, err
		}
		if resp == nil {
			return llmhttp.Used{}, asked.CheckReply(nil)
		}
		reply = *resp // which belongs to the Backend
		if reply.SearchUnits <= 0 {
			reply.SearchUnits = units
		}
		return llmhttp.Used{ // what a reply has used that is not valid is charged
			Usage: reply.Usage, Units: &llmhttp.Units{SearchUnits: reply.SearchUnits}, Model: reply.Model, Size: reply.size(),
		}, asked.CheckReply(resp)
	})
	if err != nil {
		return err
	}
	reply.rank(&asked)
	reply.Model, reply.ID = cmp.Or(reply.Model, asked.Model), cmp.Or(reply.ID, randomid.New("rerank-"))
	return c.Reply("application/json", func(b []byte) ([]byte, error) {
		reply.Usage = new(c.Usage())
		return appendReply(b, &reply)
	})
}

// countTokens counts the tokens of r. A model reads the query once with each document.
func (r *Request) countTokens(c tokens.Estimator) int {
	n := c.Label(r.Model) + c.Extra(r.Extra) + max(len(r.Documents), 1)*c.Text(r.Query)
	for i := range r.Documents {
		if d := &r.Documents[i]; d.Raw != nil {
			n += c.Members(texts.KindMedia, llm.Extra{"": d.Raw})
		} else {
			n += c.Text(d.Text)
		}
	}
	return n
}

// rank puts the results into order, cuts them, and adds the documents of the request. CheckReply has found
// as many results as are asked for, each of a document.
func (r *Response) rank(asked *Request) {
	r.Results = slices.Clone(r.Results)
	slices.SortStableFunc(r.Results, func(a, b Result) int { return cmp.Compare(b.Score, a.Score) })
	r.Results = r.Results[:asked.results()]
	for i := range r.Results {
		if r.Results[i].Document = nil; asked.ReturnDocuments {
			r.Results[i].Document = &asked.Documents[r.Results[i].Index]
		}
	}
}

// size returns about how many bytes r has.
func (r *Response) size() int {
	n := jsonwire.ExtraSize(r.Extra)
	for i := range r.Results {
		n += texts.ElementSize + jsonwire.ExtraSize(r.Results[i].Extra)
	}
	return n
}
