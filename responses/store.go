// Stores responses. To a responsestore.Store responses and items are bytes, so that stores need not
// import this package.

package responses

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsestore"
)

// stores reports whether the response to r is stored. The default is true, as in
// OpenAI's service.
func (p *protocol) stores(r *request) bool {
	return p.opts.Store != nil && (r.body.Store == nil || *r.body.Store)
}

// SaveReply returns a function that stores the response.
func (e *encoder) SaveReply(u *llm.Usage, extra llm.Extra) func(context.Context) error {
	if !e.p.stores(e.req) || e.failure != nil {
		return nil
	}
	e.finish(u, extra)
	stored := &responsestore.Response{
		ID: e.id, Account: e.req.account, Created: time.Now(),
		Body: append(e.appendHead(nil), '}'), Input: e.req.stored,
	}
	if previous := e.req.body.PreviousResponseID; previous != nil {
		stored.Previous = *previous
	}
	if e.p.opts.KeepFor > 0 {
		stored.Expires = stored.Created.Add(e.p.opts.KeepFor)
	}
	for _, it := range e.output.items {
		stored.Output = append(stored.Output, responsestore.Item{ID: it.id, Body: it.appendJSON(nil, true)})
	}
	store := e.p.opts.Store
	return func(ctx context.Context) error {
		if err := store.SaveResponse(ctx, stored); err != nil {
			return unavailable("We could not store the response. Please try again.", err, true)
		}
		return nil
	}
}

// SaveFailed makes the reply say that it is not stored, unless it must be.
func (e *encoder) SaveFailed(err error) error {
	if e.p.opts.RequireStore {
		return err
	}
	var encodeErr error
	e.echo, encodeErr = encodeEcho(e.req, false)
	return encodeErr
}

// storeTimeout is how long the store may take to load what a request needs, or to
// delete a response.
const storeTimeout = 10 * time.Second

// storeError returns the error for the client after the store has failed with err.
func storeError(err error) error {
	return unavailable("We could not reach the stored responses. Please try again.", err, false)
}

// unavailable returns the error for the client after the store has failed with err: the
// *llm.Error in err, or else a 503 with message. charged tells that SDKs must not repeat
// the request, because its reply was charged.
func unavailable(message string, err error, charged bool) error {
	cause := fmt.Errorf("%w: %w", llmhttp.ErrResponseStore, err)
	if e := (*llm.Error)(nil); errors.As(err, &e) {
		return cause
	}
	e := &llm.Error{Status: http.StatusServiceUnavailable, Message: message, NoRetry: charged, Err: cause}
	if !charged {
		e.RetryAfter = time.Second
	}
	return e
}
