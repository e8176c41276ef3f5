// The operation that generates images: constants, interfaces, checks and descriptor.

package llmhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationImages is the [Operation] of generating images.
const OperationImages Operation = "images"

// ScopeImages is the [Scope] of images, generated and edited.
const ScopeImages Scope = "images"

// An ImageGenerator is a [Backend] that generates images.
type ImageGenerator interface {
	// GenerateImages returns req.Count() images. The ImageGenerator owns req.
	GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error)
}

// An ImageSizer is a [Backend] whose image models allow certain sizes only. The Handler refuses
// other sizes before it calls GenerateImages, and package imageedit before it calls EditImages, except
// ImageSizeAuto.
type ImageSizer interface {
	// ImageSizes returns the sizes that model allows, such as "1024x1024". An
	// empty result allows every size. For an unknown model it returns
	// [llm.ModelNotFound].
	ImageSizes(ctx context.Context, model string) ([]string, error)
}

// checkEmpty refuses members that are "". After decoding, they look like members that
// are missing, so it looks at the body.
func checkEmpty(r *llm.ImageRequest, body []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	isEmpty := func(name string) bool { return string(members[name]) == `""` }
	switch {
	case isEmpty("size"):
		return invalid.Form("size", "", bounds.SizeForm)
	case isEmpty("quality"):
		return invalid.Value("quality", "", bounds.ImageQualities...)
	case isEmpty("response_format"):
		return invalid.Value("response_format", "", llm.ImageFormatURL, llm.ImageFormatBase64)
	}
	return nil
}

var imagesOperation = operation{name: OperationImages, scope: ScopeImages, supportedBy: Has[ImageGenerator], output: OutputImages}

// imageEstimate returns what r is expected to use.
func imageEstimate(c *Call, r *llm.ImageRequest) Estimate {
	return Estimate{
		Model: r.Model, User: r.EndUser(), Tokens: func() int { return images.CountTokens(c.q.tokenEstimator(), r) }, Units: &Units{Images: int64(r.Count())},
		Stream: r.Stream, Params: RequestParams{Choices: r.Count(), Messages: 1}, ImageSize: r.Size, ImageQuality: r.Quality,
	}
}

// decodeImages decodes POST /v1/images/generations.
func decodeImages(
	ctx context.Context,
	_ *http.Request,
	body []byte,
) (*llm.ImageRequest, func(b []byte, r *llm.ImageResponse) ([]byte, error), error) {
	req := new(llm.ImageRequest)
	if err := decodeRequest(body, imageRequestJSON, req); err != nil {
		return nil, nil, err
	}
	if err := checkUnknownMembers(ctx, req.Extra); err != nil {
		return nil, nil, err
	}
	if err := checkEmpty(req, body); err != nil {
		return nil, nil, err
	}
	return req, imageResponseJSON.Append, req.Validate()
}

// imageTokens estimates the completion tokens of an image of a size and a quality as those of
// gpt-image-1: 4160 for 1024x1024 in high quality
// (https://platform.openai.com/docs/guides/image-generation#cost-and-latency). What is left to the
// model is the largest size and the best quality of that.
func imageTokens(size, quality string) int64 {
	pixels, pixelsPerToken := int64(1024*1536), int64(252)
	if width, height, ok := strings.Cut(size, "x"); ok {
		w, _ := strconv.ParseInt(width, 10, 32)
		h, _ := strconv.ParseInt(height, 10, 32)
		pixels = w * h
	}
	switch quality {
	case "low":
		pixelsPerToken = 3855
	case "medium", "standard":
		pixelsPerToken = 993
	}
	return max(pixels/pixelsPerToken, 1)
}

// checkImageSize refuses a size that the model does not allow.
func checkImageSize(ctx context.Context, b Backend, r *llm.ImageRequest) error {
	return images.CheckSize(r, func(model string) ([]string, error) { return callAbility(ctx, b, ImageSizer.ImageSizes, model) })
}

// BindImages binds a route to images, with [ScopeImages]. decode checks the request by
// [llm.ImageRequest.Validate]. The images that encode gets have a URL or Data, as the
// ResponseFormat of the request asks, or as the Backend gave them. newEncoder returns the encoder of the reply to a request with
// Stream, and must not keep the request; nil means that replies are always whole. If the Backend is
// no [ImageGenerator], the client gets a 404. See "Protocols" in the package documentation.
func BindImages(decode func(ctx context.Context, r *http.Request, body []byte) (
	req *llm.ImageRequest, encode func(b []byte, reply *llm.ImageResponse) ([]byte, error), err error),
	newEncoder func(req *llm.ImageRequest) ImageEncoder,
) Binding {
	mustBeSet(decode != nil)
	return imagesOperation.bindCall(func(c *Call) error {
		req, encode, err := decodeBody(c.q, decode)
		if err != nil {
			return err
		}
		if req.Stream && newEncoder != nil {
			return serveImageStream(c, req, newEncoder(req))
		}
		return serveImages(c, req, encode)
	})
}

// serveImages serves a request whose reply is whole.
func serveImages(c *Call, req *llm.ImageRequest, encode func(b []byte, r *llm.ImageResponse) ([]byte, error)) error {
	if err := c.Reserve(imageEstimate(c, req)); err != nil {
		return err
	}
	err := c.Check(func(ctx context.Context, b Backend) error { return checkImageSize(ctx, b, req) })
	if err != nil {
		return err
	}
	format := req.ResponseFormat // the Backend may change req
	var reply llm.ImageResponse
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		resp, err := callAbility(ctx, b, ImageGenerator.GenerateImages, req)
		if err == nil {
			err = images.CheckReply(resp)
		}
		if err != nil {
			return Used{}, err
		}
		reply = *resp // which belongs to the Backend
		return Used{Usage: resp.Usage, Units: &Units{Images: int64(len(resp.Data))}, Size: images.ReplySize(resp)}, nil
	})
	if err != nil {
		return err
	}
	if err := images.Convert(&reply, format, c.ImageURL); err != nil {
		return err
	}
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) {
		reply.Created = cmp.Or(reply.Created, c.Time().Unix())
		return encode(b, &reply)
	})
}

// serveImageStream serves a request whose reply is a stream that encoder encodes.
func serveImageStream(c *Call, req *llm.ImageRequest, encoder ImageEncoder) error {
	if err := c.Reserve(imageEstimate(c, req)); err != nil {
		return err
	}
	var complete images.Counter
	s := c.Stream(encoder.Framing(), encoder.AppendFailure)
	err := c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		if err := checkImageSize(ctx, b, req); err != nil {
			return Used{}, errors.Join(err, llm.ErrNotSent)
		}
		err := AppendStream(s, StreamImages(ctx, b, req), func(chunk *llm.ImageChunk) Progress {
			hasImage, bytes := complete.Add(chunk)
			return Progress{Usage: chunk.Usage, HasOutput: hasImage, Size: bytes}
		}, encoder.AppendChunk)
		if err != nil {
			return Used{}, err // of a part, all that were asked for are charged
		}
		return Used{Units: &Units{Images: int64(complete)}}, nil
	})
	if err != nil {
		return err
	}
	return s.End(func(b []byte) ([]byte, error) { return encoder.AppendEnd(b, new(c.Usage())) })
}
