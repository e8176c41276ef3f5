// Package moderation serves the moderations of OpenAI's API: what is harmful in texts and images.
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Routes: moderation.Routes()})
//
// The Handler then serves POST /v1/moderations, if [llmhttp.As] finds a [Moderator] in the Backend.
// Otherwise clients get a 404. It checks the number of results and their scores. A key needs the scope
// "moderations", unless its Scopes are nil. The usage is in tokens, and is estimated if the Backend does
// not tell it.
package moderation

import (
	"cmp"
	"context"

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

// Operation is the [llmhttp.Operation] of telling what is harmful in texts and images.
const Operation llmhttp.Operation = "moderations"

// Scope is the [llmhttp.Scope] of telling what is harmful in texts and images.
const Scope llmhttp.Scope = "moderations"

// A Moderator is a [llmhttp.Backend] that tells what is harmful in texts and images.
type Moderator interface {
	// Moderate returns a result for each text of req, in their order, or one for all parts. The
	// Moderator owns req. It is called concurrently.
	Moderate(ctx context.Context, req *Request) (*Response, error)
}

// Endpoint is what the routes of this package are made of, for Protocols with routes of their own: see
// [Serve]. It must not be changed.
var Endpoint = &llmhttp.Endpoint{
	Operation: Operation, Scope: Scope, Supported: llmhttp.Has[Moderator], Output: llmhttp.OutputNone,
}

func init() { endpoints.Register(string(Operation), Endpoint.Supported) }

// Routes returns new Routes for Options.Routes.
func Routes() []llmhttp.Route {
	return []llmhttp.Route{llmhttp.NewRoute("POST /v1/moderations", Endpoint, serve)}
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
// appendReply appends the reply to b. The reply that it gets is complete, with the usage that is recorded.
// It is only valid during the call.
func Serve(c *llmhttp.Call, req *Request, appendReply func(b []byte, reply *Response) ([]byte, error)) error {
	err := c.Reserve(llmhttp.Estimate{
		Model: req.Model, User: req.EndUser(), Tokens: func() int { return req.countTokens(wire.Estimator(c, req.Model)) },
		Params: llmhttp.RequestParams{Messages: req.Input.Results()},
	})
	if err != nil {
		return err
	}
	asked := *req // the Backend may change req
	var reply Response
	err = c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		resp, err := ability.Call(Moderator.Moderate)(ctx, b, req)
		if err != nil {
			return llmhttp.Used{}, err
		}
		if resp == nil {
			return llmhttp.Used{}, asked.CheckReply(nil)
		}
		reply = *resp // which belongs to the Backend
		// What a reply has used that is not valid is charged.
		return llmhttp.Used{Usage: reply.Usage, Model: reply.Model, Size: reply.size()}, asked.CheckReply(resp)
	})
	if err != nil {
		return err
	}
	reply.Model, reply.ID = cmp.Or(reply.Model, asked.Model), cmp.Or(reply.ID, randomid.New("modr-"))
	return c.Reply("application/json", func(b []byte) ([]byte, error) {
		reply.Usage = new(c.Usage())
		return appendReply(b, &reply)
	})
}

// countTokens counts the tokens of r.
func (r *Request) countTokens(c tokens.Estimator) int {
	n := c.Label(r.Model) + c.Extra(r.Extra)
	for _, text := range r.Input.Texts {
		n += c.Text(text)
	}
	for i := range r.Input.Parts {
		p := &r.Input.Parts[i]
		if p.Type != llm.PartText {
			n += tokens.TokensPerMedia
		}
		texts.WalkPart(p, func(kind texts.Kind, s *string) { n += c.OfKind(kind, *s) }, func(kind texts.Kind, e llm.Extra) { n += c.Members(kind, e) })
	}
	return n
}

// size returns about how many bytes r has.
func (r *Response) size() int {
	n := jsonwire.ExtraSize(r.Extra)
	for i := range r.Results {
		result := &r.Results[i]
		n += texts.ElementSize * (1 + len(result.Categories) + len(result.Scores) + len(result.InputTypes))
		n += jsonwire.ExtraSize(result.Extra)
	}
	return n
}
