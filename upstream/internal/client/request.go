// The HTTP request of a call, and the checks of its header.

package client

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// newRequest returns the HTTP request of r.
func (c *Client) newRequest(r *reply.Reply, e Endpoint, body payload.Payload, accept string) (*http.Request, error) {
	if cause := r.CallerCause(); cause != nil {
		return nil, cause
	}
	req, err := http.NewRequestWithContext(r.Context(), e.Method, e.URL, nil)
	if err != nil {
		return nil, r.Unavailable("the request is not valid", err)
	}
	req.Header = c.Header.Clone()
	maps.Copy(req.Header, e.Header)
	req.Header.Set("Accept", accept)
	if body.Size > 0 {
		req.ContentLength = body.Size
		req.GetBody = body.Open
		if req.Body, err = body.Open(); err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", body.ContentType)
	}
	if name := c.RequestIDHeader; name != "-" {
		if id := callctx.RequestID(r.Caller()); id != "" {
			req.Header.Set(name, id)
		}
	}
	if c.KeyFunc != nil {
		if err := c.setKey(r, req.Header); err != nil {
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
		if slices.ContainsFunc(values, HasControl) {
			return name
		}
	}
	return ""
}

// HasControl reports whether s has a character that the value of a header must not have (RFC 9110,
// section 5.5).
func HasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// setKey sets the key that KeyFunc returns.
func (c *Client) setKey(r *reply.Reply, h http.Header) error {
	key, err := c.KeyFunc(r.Caller())
	if cause := r.CallerCause(); cause != nil {
		return cause
	}
	if err == nil && !IsKey(key) {
		err = errors.New("the key has a character that a header must not have")
	}
	if err != nil {
		return r.Unavailable("no key", err)
	}
	if key != "" {
		r.Redactor = r.Redactor.WithSecrets(key)
		c.SetKey(h, key)
	}
	return nil
}

// IsReservedHeader reports whether the Client or the transport sets a header.
func IsReservedHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
		"Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// IsKey reports whether s may follow "Bearer " in a header, or is empty.
func IsKey(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
