package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/internal/unsupported"
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
// other sizes before it calls GenerateImages or EditImages, except ImageSizeAuto.
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

// An imageMethod is the method of the interface A that makes images.
type imageMethod[A any] func(a A, ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error)

// imageEstimate returns what r is expected to use.
func imageEstimate(c *Call, r *llm.ImageRequest) Estimate {
	return Estimate{
		Model: r.Model, User: r.EndUser(), Tokens: func() int { return countImage(c.q.tokenEstimator(), r) }, Units: imageUnits(r.Count()),
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
	if r.Size == "" || r.Size == llm.ImageSizeAuto {
		return nil
	}
	sizes, err := callAbility(ctx, b, ImageSizer.ImageSizes, r.Model)
	switch {
	case unsupported.Is(err):
		return nil
	case err != nil:
		return err
	case len(sizes) > 0 && !slices.Contains(sizes, r.Size):
		return invalid.Value("size", r.Size, sizes...)
	}
	return nil
}

var errNoImage = errors.New("llmhttp: the Backend returned no image")

// imageUnits returns n images as Units, or nil if there is none.
func imageUnits(n int) *Units {
	if n == 0 {
		return nil
	}
	return &Units{Images: int64(n)}
}

// convertImages gives the images of a reply the form that the client asked for.
func convertImages(q *request, asked *llm.ImageRequest, r *llm.ImageResponse) error {
	if len(r.Data) < asked.Count() {
		q.log.warn(misuseFewerImages)
	}
	r.Data = slices.Clone(r.Data)
	for i := range r.Data {
		if err := convertImage(q, &r.Data[i], asked.ResponseFormat); err != nil {
			return err
		}
	}
	return nil
}

// convertImage gives m the form that the client asked for.
func convertImage(q *request, m *llm.Image, format string) error {
	if format == llm.ImageFormatBase64 {
		return convertToData(m)
	}
	if m.URL == "" {
		if len(m.Data) == 0 {
			return errors.New("llmhttp: the Backend returned an image without URL or Data")
		}
		u, err := imageURL(q, m.Data)
		if err != nil {
			return err
		}
		m.URL = u
	}
	m.Data = nil
	return nil
}

// convertToData gives m the form of clients that want data.
func convertToData(m *llm.Image) (err error) {
	m.RevisedPrompt = "" // OpenAI sends it beside a URL only
	if len(m.Data) == 0 {
		m.Data, err = decodeDataURL(m.URL)
	}
	m.URL = ""
	return err
}

// imageURL returns a URL for an image.
func imageURL(q *request, data []byte) (string, error) {
	mediaType := http.DetectContentType(data)
	if q.h.opts.ImageURL == nil {
		return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(data), nil
	}
	u, err := callUnrecorded(q, ClassInternal, func(ctx context.Context) (string, error) {
		return q.h.opts.ImageURL(ctx, data, mediaType)
	})
	if err != nil {
		return "", fmt.Errorf("llmhttp: ImageURL: %w", err)
	}
	return u, nil
}

// decodeDataURL returns the content of a data: URL, which must not be empty. The Handler
// does not fetch other URLs; a Backend that gets one has to fetch it itself.
func decodeDataURL(u string) ([]byte, error) {
	rest, ok := strings.CutPrefix(u, "data:")
	_, text, comma := strings.Cut(rest, ";base64,")
	if !ok || !comma {
		return nil, errors.New("llmhttp: the client asked for b64_json, but the Backend returned a URL")
	}
	if text == "" {
		return nil, errors.New("llmhttp: the Backend returned an image without Data")
	}
	return base64.StdEncoding.DecodeString(text)
}

func imagesSize(r *llm.ImageResponse) int {
	n := jsonwire.ExtraSize(r.Extra)
	for i := range r.Data {
		n += imageSize(&r.Data[i])
	}
	return n
}

func imageSize(m *llm.Image) int {
	return texts.ElementSize + len(m.URL) + len(m.Data) + len(m.RevisedPrompt) + jsonwire.ExtraSize(m.Extra)
}

// countImage counts the tokens of the prompt of an image request.
func countImage(c tokens.Estimator, r *llm.ImageRequest) int {
	n := c.Text(r.Prompt) + c.Extra(r.Extra)
	for _, s := range []string{r.Model, r.Size, r.Quality, r.ResponseFormat} {
		n += c.Label(s)
	}
	for _, f := range r.Files() {
		n += c.File(f)
	}
	return n
}

// BindImages binds a route to images, with [ScopeImages]. decode checks the request by
// [llm.ImageRequest.Validate]. The images that encode gets have either a URL or Data, as the
// ResponseFormat of the request asks. newEncoder returns the encoder of the reply to a request with
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
		return serveImages(c, ImageGenerator.GenerateImages, req, encode)
	})
}

// serveImages serves a request whose reply is whole, by a method such as ImageEditor.EditImages.
func serveImages[A any](
	c *Call,
	method imageMethod[A],
	req *llm.ImageRequest,
	encode func(b []byte, r *llm.ImageResponse) ([]byte, error),
) error {
	if err := c.Reserve(imageEstimate(c, req)); err != nil {
		return err
	}
	err := c.Check(func(ctx context.Context, b Backend) error { return checkImageSize(ctx, b, req) })
	if err != nil {
		return err
	}
	asked := *req // the Backend may change req
	var reply llm.ImageResponse
	err = c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		resp, err := callAbility(ctx, b, method, req)
		if err != nil {
			return Used{}, err
		}
		if resp == nil || len(resp.Data) == 0 {
			return Used{}, errNoImage
		}
		reply = *resp // which belongs to the Backend
		return Used{Usage: resp.Usage, Units: imageUnits(len(resp.Data)), Size: imagesSize(resp)}, nil
	})
	if err != nil {
		return err
	}
	if err := convertImages(c.q, &asked, &reply); err != nil {
		return c.q.client.CauseOr(err)
	}
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) {
		reply.Created = cmp.Or(reply.Created, c.q.record.Time.Unix())
		return encode(b, &reply)
	})
}

// serveImageStream serves a request whose reply is a stream that encoder encodes.
func serveImageStream(c *Call, req *llm.ImageRequest, encoder ImageEncoder) error {
	e := imageEstimate(c, req)
	if err := c.Reserve(e); err != nil {
		return err
	}
	images := 0 // that are complete
	s := c.Stream(encoder.Framing(), encoder.AppendFailure)
	err := c.Ask(func(ctx context.Context, b Backend) (Used, error) {
		if err := checkImageSize(ctx, b, req); err != nil {
			return Used{}, errors.Join(err, llm.ErrNotSent)
		}
		err := AppendStream(s, StreamImages(ctx, b, req), func(chunk *llm.ImageChunk) Progress {
			p := Progress{Usage: chunk.Usage}
			if chunk.Image != nil {
				p.HasOutput, p.Size = true, imageSize(chunk.Image)
				if !chunk.Partial {
					images++
				}
			}
			return p
		}, encoder.AppendChunk)
		if err != nil {
			return Used{}, err // of a part, all that were asked for are charged
		}
		return Used{Units: &Units{Images: int64(images)}}, nil
	})
	if err != nil {
		return err
	}
	if int64(images) < e.Units.Images {
		c.q.log.warn(misuseFewerImages)
	}
	return s.End(func(b []byte) ([]byte, error) { return encoder.AppendEnd(b, new(c.Usage())) })
}
