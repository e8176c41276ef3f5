// The HTTP request of a call, and what is done with its reply.

package upstream

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// An endpoint is a method and a URL of the server.
type endpoint struct {
	method, url string
	required    bool // every server has this endpoint, so a 404 has another cause
	limits      reply.Limits
}

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream, application/json" // errors are JSON
)

// send sends a request and waits for the header of the reply. It returns an error if the status is not 2xx. The
// caller must close the reply. accept is the Accept header.
func (b *Backend) send(ctx context.Context, e endpoint, body payload.Payload, accept string, model modelname.Names) (*reply.Reply, error) {
	r := b.server.Begin(ctx, e.limits, failure.Call{
		Server: b.opts.Name, Model: model, Required: e.required, Redactor: b.redactor, Wrap: newError,
	})
	req, err := b.newRequest(r, e, body, accept)
	if err == nil {
		err = r.Send(req)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// newRequest returns the HTTP request of r.
func (b *Backend) newRequest(r *reply.Reply, e endpoint, body payload.Payload, accept string) (*http.Request, error) {
	if cause := r.CallerCause(); cause != nil {
		return nil, cause
	}
	req, err := http.NewRequestWithContext(r.Context(), e.method, e.url, nil)
	if err != nil {
		return nil, r.Unavailable("the request is not valid", err)
	}
	req.Header = b.header.Clone()
	req.Header.Set("Accept", accept)
	if body.Size > 0 {
		req.ContentLength = body.Size
		req.GetBody = body.Open
		if req.Body, err = body.Open(); err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", body.ContentType)
	}
	if name := b.opts.RequestIDHeader; name != "-" {
		if id := callctx.RequestID(r.Caller()); id != "" {
			req.Header.Set(name, id)
		}
	}
	if b.opts.KeyFunc != nil {
		if err := b.setKey(r, req.Header); err != nil {
			return nil, err
		}
	}
	if name := unsafeHeader(req.Header); name != "" {
		return nil, r.Unavailable("the request is not valid", errors.New("control character in the header "+name))
	}
	return req, nil
}

// unsafeHeader returns the name of a header with a control character, or "". A Transport of the host may write
// headers without the checks of net/http.
func unsafeHeader(h http.Header) string {
	for name, values := range h {
		if slices.ContainsFunc(values, hasHeaderControl) {
			return name
		}
	}
	return ""
}

// hasHeaderControl reports whether s has a character that the value of a header must not have (RFC 9110,
// section 5.5).
func hasHeaderControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// setKey sets the key that KeyFunc returns.
func (b *Backend) setKey(r *reply.Reply, h http.Header) error {
	key, err := b.opts.KeyFunc(r.Caller())
	if cause := r.CallerCause(); cause != nil {
		return cause
	}
	if err == nil && !isKey(key) {
		err = errors.New("the key has a character that a header must not have")
	}
	if err != nil {
		return r.Unavailable("no key", err)
	}
	if key != "" {
		r.Redactor = r.Redactor.WithSecrets(key)
		h.Set("Authorization", "Bearer "+key)
	}
	return nil
}

// fetch sends a request and returns what decode makes of the body of the reply.
func fetch[T any](ctx context.Context, b *Backend, e endpoint, body payload.Payload, model modelname.Names,
	decode func(r *reply.Reply, body []byte) (T, error)) (decoded T, err error) {
	r, err := b.send(ctx, e, body, mediaJSON, model)
	if err != nil {
		return decoded, err
	}
	defer r.Close()
	content, err := r.ReadAll()
	if err != nil {
		return decoded, err
	}
	return decode(r, content)
}
