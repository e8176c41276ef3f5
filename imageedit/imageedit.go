// Package imageedit serves POST /v1/images/edits of OpenAI's API: a prompt changes images, or combines
// several to one.
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Routes: imageedit.Routes(nil)})
//
// The Handler then serves the path if [llmhttp.As] finds an [Editor] in the Backend. Otherwise clients get
// a 404. The body of a request is a form, or JSON whose images are data: URLs. A client that asks for a
// stream gets images while they are made, if there is a [Streamer]. A key needs the scope "images", as for
// generations, unless its Scopes are nil. Sizes are those of an [llmhttp.ImageSizer], if there is one. The
// number of images is recorded, and the tokens, which are estimated if the Backend does not tell them.
//
// The images must be in the request, and are complete before the Editor is called: the Handler fetches no
// addresses and stores no files, so file_id and other URLs get a 400. JSON is bounded by
// Options.Bounds.MaxBody, and in memory until it is decoded, also with the Dir of a [form.Store]. The
// field markup of the newest models is not a file for the Handler, which refuses it.
package imageedit

import (
	"cmp"
	"context"
	"errors"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/wire"
	"github.com/llmhttp/llmhttp/internal/wrapped"
	"github.com/llmhttp/llmhttp/llm"
)

// Operation is the [llmhttp.Operation] of editing images.
const Operation llmhttp.Operation = "image_edits"

// Scope is the [llmhttp.Scope] of editing images: that of generating them.
const Scope = llmhttp.ScopeImages

// An Editor is a [llmhttp.Backend] that edits images, and combines several to one.
type Editor interface {
	// EditImages returns req.Count() images, which are what the prompt makes of req.Images. For a
	// file that it cannot read it returns an [*llm.Error] with the status 400, the code "invalid_value"
	// and the param "image". The Editor owns req, but not the content of the files, which others may
	// read too. It is called concurrently.
	EditImages(ctx context.Context, req *Request) (*llm.ImageResponse, error)
}

// A Streamer is an [Editor] that shows images while they are made. For other Backends, a client that asks
// for a stream gets the complete images as events.
type Streamer interface {
	// StreamImageEdits is EditImages of a request with Stream. It is not called if the Backend is no
	// Editor. As with Chat of a [llmhttp.Backend], the work is done while the stream is iterated over, and
	// must stop when ctx is done. The Streamer owns req as an Editor does. If the stream begins with an
	// error that wraps [errors.ErrUnsupported], the client gets the complete images as events. See also
	// the function [Stream].
	StreamImageEdits(ctx context.Context, req *Request) llm.ImageStream
}

// Endpoint is what the route of this package is made of, for Protocols with routes of their own: see
// [Serve]. It must not be changed.
var Endpoint = &llmhttp.Endpoint{
	Operation: Operation, Scope: Scope, Supported: llmhttp.Has[Editor], Output: llmhttp.OutputImages,
}

func init() { endpoints.Register(string(Operation), Endpoint.Supported) }

// Options configure the [Routes]. Nil Options are like zero ones.
type Options struct {
	// Files keeps the images of requests while these are served. Other routes may have the same Store.
	// Nil means one of its own, with the defaults.
	Files *form.Store
}

// Routes returns new Routes for Options.Routes of a Handler. It panics if Files.Validate returns an error.
func Routes(o *Options) []llmhttp.Route {
	var opts Options
	if o != nil {
		opts = *o
	}
	files := wire.Files("imageedit", opts.Files)
	return []llmhttp.Route{llmhttp.NewRoute("POST /v1/images/edits", Endpoint, func(c *llmhttp.Call) error { return serve(c, files) })}
}

func serve(c *llmhttp.Call, files *form.Store) error {
	req := new(Request)
	if err := req.read(c, files); err != nil {
		return err
	}
	if req.Stream {
		return ServeStream(c, req, events{images.NewEvents("image_edit", &req.ImageRequest)})
	}
	return Serve(c, req, responseJSON.Append)
}

// Serve serves a request that another wire format has, with a whole reply, for the function of a route that
// a Protocol makes of [Endpoint] with [llmhttp.NewRoute]. That function reads the body into a Request, for
// example by a [form.Store], and checks it by [Request.Validate]; Serve, which then owns req, calls
// Reserve, Check, Ask and Reply.
//
// appendReply appends the reply to b. The images of the reply that it gets have a URL or Data, as
// req.ResponseFormat asks, or as the Editor gave them. It is only valid during the call.
func Serve(c *llmhttp.Call, req *Request, appendReply func(b []byte, reply *llm.ImageResponse) ([]byte, error)) error {
	if err := c.Reserve(req.estimate(c)); err != nil {
		return err
	}
	if err := c.Check(req.checkSize); err != nil {
		return err
	}
	format := req.ResponseFormat // the Backend may change req
	var reply llm.ImageResponse
	err := c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		resp, err := ability.Call(Editor.EditImages)(ctx, b, req)
		if err == nil {
			err = images.CheckReply(resp)
		}
		if err != nil {
			return llmhttp.Used{}, err
		}
		reply = *resp // which belongs to the Backend
		return llmhttp.Used{Usage: resp.Usage, Units: &llmhttp.Units{Images: int64(len(resp.Data))}, Size: images.ReplySize(resp)}, nil
	})
	if err != nil {
		return err
	}
	if err := images.Convert(&reply, format, c.ImageURL); err != nil {
		return err
	}
	reply.Created = cmp.Or(reply.Created, c.Time().Unix())
	return c.Reply("application/json", func(b []byte) ([]byte, error) { return appendReply(b, &reply) })
}

// ServeStream is [Serve] of a request with Stream, whose reply is a stream that encoder encodes.
func ServeStream(c *llmhttp.Call, req *Request, encoder llmhttp.ImageEncoder) error {
	if err := c.Reserve(req.estimate(c)); err != nil {
		return err
	}
	var complete images.Counter
	s := c.Stream(encoder.Framing(), encoder.AppendFailure)
	err := c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
		if err := req.checkSize(ctx, b); err != nil {
			return llmhttp.Used{}, errors.Join(err, llm.ErrNotSent)
		}
		err := llmhttp.AppendStream(s, Stream(ctx, b, req), func(chunk *llm.ImageChunk) llmhttp.Progress {
			hasImage, bytes := complete.Add(chunk)
			return llmhttp.Progress{Usage: chunk.Usage, HasOutput: hasImage, Size: bytes}
		}, encoder.AppendChunk)
		if err != nil {
			return llmhttp.Used{}, err // of a part, all that were asked for are charged
		}
		return llmhttp.Used{Units: &llmhttp.Units{Images: int64(complete)}}, nil
	})
	if err != nil {
		return err
	}
	return s.End(func(b []byte) ([]byte, error) { return encoder.AppendEnd(b, new(c.Usage())) })
}

// Stream calls the method of a [Streamer] if b, or what it wraps as [llmhttp.As] finds it, is one.
// Otherwise it yields the complete images of EditImages, as it does if something around the Streamer has
// that method: a wrapper that changes images sees those of streams too. If b is no [Editor], the error
// wraps [errors.ErrUnsupported]. A Handler calls it for requests with Stream, and so does a wrapper that
// has a StreamImageEdits of its own. b owns req.
func Stream(ctx context.Context, b llmhttp.Backend, req *Request) llm.ImageStream {
	editor, err := ability.Find[Editor](ctx, b)
	if err != nil {
		return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, err) }
	}
	var stream func(context.Context, *Request) llm.ImageStream
	if s, ok := wrapped.FindBefore[Streamer, Editor](b, wrapped.Next[llmhttp.Backend](ctx)); ok {
		stream = s.StreamImageEdits
	}
	return images.Stream(ctx, req, stream, editor.EditImages)
}

// estimate returns what r is expected to use.
func (r *Request) estimate(c *llmhttp.Call) llmhttp.Estimate {
	return llmhttp.Estimate{
		Model: r.Model, User: r.EndUser(), Tokens: func() int { return r.countTokens(wire.Estimator(c, r.Model)) },
		Units: &llmhttp.Units{Images: int64(r.Count())}, Stream: r.Stream,
		Params: llmhttp.RequestParams{Choices: r.Count(), Messages: 1}, ImageSize: r.Size, ImageQuality: r.Quality,
	}
}

// checkSize refuses a size that the model does not allow.
func (r *Request) checkSize(ctx context.Context, b llmhttp.Backend) error {
	return images.CheckSize(&r.ImageRequest, func(model string) ([]string, error) {
		return ability.Call(llmhttp.ImageSizer.ImageSizes)(ctx, b, model)
	})
}

// events encodes a stream as server-sent events.
type events struct{ *images.Events }

func (events) Framing() llmhttp.Framing { return llmhttp.EventStream() }
