// Package client sends the requests of the Backends in and below package upstream: it has the URL, the key, the
// names of models and the bounds of a server, whatever the format of its requests and replies.
package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// A Client sends requests to one server. It must not be copied, and its fields must not be changed after the first
// request. Its methods may be called concurrently.
type Client struct {
	Name            string // of the server, for logs
	Base            *url.URL
	Header          http.Header // sent with every request
	RequestIDHeader string      // "-" if the ID of the client's request is not sent
	Redactor        *redact.Redactor
	Wrap            func(failure.Details) error // makes the Err of an llm.Error
	Models          map[string]string           // from the clients' names to those of the server
	Server          reply.Server
	Limits          reply.Limits // of an endpoint that calls a model

	// SetKey sets the key in a header. It is used for KeyFunc, which is nil unless each request has a key of its own.
	SetKey  func(h http.Header, key string)
	KeyFunc func(ctx context.Context) (string, error)
}

// SetBearer sets a key as OpenAI's API takes it.
func SetBearer(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// An Endpoint is a method and a URL of the server.
type Endpoint struct {
	Method, URL string
	Required    bool // every server has this endpoint, so a 404 has another cause
	Limits      reply.Limits
	Header      http.Header // sent besides that of the Client; nil for none
}

// Media types of the Accept header.
const (
	MediaJSON   = "application/json"
	MediaEvents = "text/event-stream, application/json" // errors are JSON
)

// Accepted returns the Accept header for a reply that may be a stream.
func Accepted(stream bool) string {
	if stream {
		return MediaEvents
	}
	return MediaJSON
}

// Endpoint returns the endpoint with a path below the base URL, with the Limits of c.
func (c *Client) Endpoint(method, path string) Endpoint {
	return Endpoint{Method: method, URL: c.Base.JoinPath(path).String(), Limits: c.Limits}
}

// ModelNames returns the names of the model that clients call name.
func (c *Client) ModelNames(name string) modelname.Names {
	if server, ok := c.Models[name]; ok {
		return modelname.Names{Client: name, Server: server}
	}
	return modelname.Names{Client: name, Server: name}
}

// Send sends a request and waits for the header of the reply. It returns an error if the status is not 2xx. The
// caller must close the reply. accept is the Accept header.
func (c *Client) Send(ctx context.Context, e Endpoint, body payload.Payload, accept string, model modelname.Names) (*reply.Reply, error) {
	r := c.Server.Begin(ctx, e.Limits, failure.Call{
		Server: c.Name, Model: model, Required: e.Required, Redactor: c.Redactor, Wrap: c.Wrap,
	})
	req, err := c.newRequest(r, e, body, accept)
	if err == nil {
		err = r.Send(req)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Fetch sends a request and returns what decode makes of the body of the reply.
func Fetch[T any](ctx context.Context, c *Client, e Endpoint, body payload.Payload, model modelname.Names,
	decode func(r *reply.Reply, body []byte) (T, error)) (decoded T, err error) {
	r, err := c.Send(ctx, e, body, MediaJSON, model)
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

// of returns the Client of a Backend of package upstream.
var of func(backend any) *Client

// Register sets what Of calls. Package upstream calls it once, when it is initialized.
func Register(f func(backend any) *Client) { of = f }

// Of returns the Client of a Backend of package upstream, for a Backend that is made of it.
func Of(backend any) *Client { return of(backend) }
