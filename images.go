package llmhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// OperationImages is the [Operation] of generating images.
const OperationImages Operation = "images"

// ScopeImages is the [Scope] of images, generated and edited.
const ScopeImages Scope = "images"

// An ImageGenerator is a [Backend] that generates images.
type ImageGenerator interface {
	// GenerateImages returns req.Count() images. The ImageGenerator owns req.
	GenerateImages(ctx context.Context, req *ImageRequest) (*ImageResponse, error)
}

// An ImageSizer is a [Backend] whose image models allow certain sizes only. The Handler refuses
// other sizes before it calls GenerateImages or EditImages, except ImageSizeAuto.
type ImageSizer interface {
	// ImageSizes returns the sizes that model allows, such as "1024x1024". An
	// empty result allows every size. For an unknown model it returns
	// [ModelNotFound].
	ImageSizes(ctx context.Context, model string) ([]string, error)
}

const (
	maxImages        = 10
	maxPartialImages = 3
	maxPromptChars   = 32000
)

// ImageSizeAuto is the [ImageRequest.Size] that leaves the size to the Backend.
const ImageSizeAuto = "auto"

// imageQualities are the values of ImageRequest.Quality.
var imageQualities = []string{"standard", "hd", "low", "medium", "high", "xhigh", "max", "auto"}

// The values of [ImageRequest.ResponseFormat].
const (
	ImageFormatURL    = "url"
	ImageFormatBase64 = "b64_json"
)

// An ImageRequest is the body of POST /v1/images/generations, or the form of POST /v1/images/edits,
// which has Images. A Handler checks requests before it passes them to a Backend, and sets
// ResponseFormat, and the Size unless there are Images.
type ImageRequest struct {
	Model          string `json:"model"`
	Prompt         string `json:"prompt"`
	N              *int   `json:"n,omitzero"`               // number of images, 1 to 10; nil means 1
	Size           string `json:"size,omitzero"`            // "<width>x<height>" in pixels or ImageSizeAuto; the format's default is 1024x1024, and for edits the Backend's choice
	Quality        string `json:"quality,omitzero"`         // standard, hd, low, medium, high, xhigh, max, auto, or empty for the Backend's choice
	ResponseFormat string `json:"response_format,omitzero"` // ImageFormatURL or ImageFormatBase64: what the client gets; the Backend may return either
	Stream         bool   `json:"stream,omitzero"`          // the client gets images while they are made, as base64 whatever the ResponseFormat is: see [ImageStreamer]
	PartialImages  *int   `json:"partial_images,omitzero"`  // how often a stream shows an image that is not complete, 0 to 3; nil means 0
	Extra          Extra  `json:"-"`                        // of a form: its other fields as strings, or as arrays of strings if their names end in "[]" or come several times

	Images []*File `json:"-"` // what an [ImageEditor] is to edit or to combine, 1 to 16; nil if images are generated
	Mask   *File   `json:"-"` // a PNG that is transparent where the first of Images is to be edited; nil if the model chooses
}

var imageRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *ImageRequest) *string { return &r.Model }).Always(),
	jsonwire.String("prompt", func(r *ImageRequest) *string { return &r.Prompt }).Always(),
	jsonwire.OptionalInt("n", func(r *ImageRequest) **int { return &r.N }).Between(1, maxImages),
	jsonwire.String("size", func(r *ImageRequest) *string { return &r.Size }),
	jsonwire.String("quality", func(r *ImageRequest) *string { return &r.Quality }),
	jsonwire.String("response_format", func(r *ImageRequest) *string { return &r.ResponseFormat }),
	jsonwire.Bool("stream", func(r *ImageRequest) *bool { return &r.Stream }),
	jsonwire.OptionalInt("partial_images", func(r *ImageRequest) **int { return &r.PartialImages }).Between(0, maxPartialImages),
	jsonwire.Extra(func(r *ImageRequest) *Extra { return &r.Extra }),
)

// Count returns the number of images that the client asked for.
func (r *ImageRequest) Count() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r ImageRequest) MarshalJSON() ([]byte, error) { return marshal(imageRequestJSON, &r) }

// UnmarshalJSON decodes a request without checking it.
func (r *ImageRequest) UnmarshalJSON(data []byte) error {
	return unmarshalRequest(data, imageRequestJSON, r)
}

// An Image is one of the images of an [ImageResponse]. A Backend sets URL or Data.
type Image struct {
	URL           string `json:"url,omitzero"`            // where the client can fetch it
	Data          []byte `json:"b64_json,omitzero"`       // an encoded image, such as a PNG; in JSON it is base64
	RevisedPrompt string `json:"revised_prompt,omitzero"` // the prompt as the model rewrote it, if it did
	Extra         Extra  `json:"-"`
}

var imageJSON = jsonwire.NewObject(
	jsonwire.String("url", func(m *Image) *string { return &m.URL }),
	jsonwire.Base64("b64_json", func(m *Image) *[]byte { return &m.Data }),
	jsonwire.String("revised_prompt", func(m *Image) *string { return &m.RevisedPrompt }),
	jsonwire.Extra(func(m *Image) *Extra { return &m.Extra }),
)

// MarshalJSON encodes m.
func (m Image) MarshalJSON() ([]byte, error) { return marshal(imageJSON, &m) }

// UnmarshalJSON decodes an image leniently.
func (m *Image) UnmarshalJSON(data []byte) error { return unmarshalReply(data, imageJSON, m) }

// An ImageResponse is the reply of an [ImageGenerator]. It is decoded leniently:
// see [ChatChunk].
type ImageResponse struct {
	Created int64   `json:"created"` // Unix time in seconds; if zero, the Handler sets it
	Data    []Image `json:"data"`
	Usage   *Usage  `json:"usage,omitzero"` // with input_tokens and output_tokens; nil if images are not counted in tokens
	Extra   Extra   `json:"-"`
}

var imageResponseJSON = jsonwire.NewObject(
	jsonwire.Int("created", func(r *ImageResponse) *int64 { return &r.Created }).Always(),
	jsonwire.List("data", func(r *ImageResponse) *[]Image { return &r.Data }, imageJSON, 0).Always(),
	jsonwire.Pointer("usage", func(r *ImageResponse) **Usage { return &r.Usage }, mediaUsageJSON),
	jsonwire.Extra(func(r *ImageResponse) *Extra { return &r.Extra }),
).AfterDecode(func(r *ImageResponse) { r.Usage = nilIfZero(r.Usage) })

// mediaUsageJSON is the JSON of the Usage of images and speech.
var mediaUsageJSON = jsonwire.NewObject(
	jsonwire.Int("input_tokens", func(u *Usage) *int { return &u.PromptTokens }).Always(),
	jsonwire.Int("output_tokens", func(u *Usage) *int { return &u.CompletionTokens }).Always(),
	totalTokensField,
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

// MarshalJSON encodes r.
func (r ImageResponse) MarshalJSON() ([]byte, error) { return marshal(imageResponseJSON, &r) }

// UnmarshalJSON decodes a response leniently.
func (r *ImageResponse) UnmarshalJSON(data []byte) error {
	return unmarshalReply(data, imageResponseJSON, r)
}

// Validate returns an *Error for the first parameter that the format does not allow, and sets
// Size and ResponseFormat if they are empty. Functions that decode requests call it: see
// [BindImages].
func (r *ImageRequest) Validate() error { return asError(r.validate()) }

func (r *ImageRequest) validate() error {
	switch n := utf8.RuneCountInString(r.Prompt); {
	case r.Model == "":
		return param.Missing("model")
	case n == 0:
		return param.Missing("prompt")
	case n > maxPromptChars:
		return param.LongString("prompt", maxPromptChars, n)
	}
	if err := imageRequestJSON.Check(r); err != nil {
		return param.FromJSON(err)
	}
	if err := r.validateFiles(); err != nil {
		return err
	}
	size, format := "1024x1024", ImageFormatURL
	if r.Images != nil {
		size, format = "", ImageFormatBase64 // some clients read nothing else
	}
	r.Size = cmp.Or(r.Size, size)
	if r.Size != "" && r.Size != ImageSizeAuto && !sizePattern.MatchString(r.Size) {
		return param.Form("size", r.Size, sizeForm)
	}
	if r.Quality != "" && !slices.Contains(imageQualities, r.Quality) {
		return param.Value("quality", r.Quality, imageQualities...)
	}
	r.ResponseFormat = cmp.Or(r.ResponseFormat, format)
	switch r.ResponseFormat {
	case ImageFormatURL, ImageFormatBase64:
	default:
		return param.Value("response_format", r.ResponseFormat, ImageFormatURL, ImageFormatBase64)
	}
	return nil
}

// checkEmpty refuses members that are "". After decoding, they look like members that
// are missing, so it looks at the body.
func (r *ImageRequest) checkEmpty(body []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	isEmpty := func(name string) bool { return string(members[name]) == `""` }
	switch {
	case isEmpty("size"):
		return errInvalidText("size", "", sizeForm)
	case isEmpty("quality"):
		return errInvalidValue("quality", "", imageQualities...)
	case isEmpty("response_format"):
		return errInvalidValue("response_format", "", ImageFormatURL, ImageFormatBase64)
	}
	return nil
}

const sizeForm = "a width and a height in pixels, such as '1024x1024'"

var sizePattern = regexp.MustCompile(`^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$`)

// EndUser returns the end user whom the client names, as that of a [ChatRequest].
func (r *ImageRequest) EndUser() string { return namedUser(r.Extra) }

var imagesOperation = newImagesOperation(OperationImages, implements[ImageGenerator], Forwarder.GenerateImages)

// newImagesOperation returns the descriptor of an operation whose reply is images.
func newImagesOperation(
	name Operation,
	supportedBy func(b Backend) bool,
	call func(b Forwarder, ctx context.Context, r *ImageRequest) (*ImageResponse, error),
) *oneShot[ImageRequest, ImageResponse] {
	return &oneShot[ImageRequest, ImageResponse]{
		modelCall: modelCall[ImageRequest]{
			operation: operation{name: name, scope: ScopeImages, supportedBy: supportedBy, output: outputImages},
			model:     func(r *ImageRequest) string { return r.Model },
			describer: func(r *ImageRequest) describer { return imageDescriber{r} },
			user:      (*ImageRequest).EndUser,
			prompt:    tokenEstimator.image,
			units:     func(r *ImageRequest) *Units { return imageUnits(r.Count()) },
			setRecord: func(r *ImageRequest, record *UsageRecord) {
				record.ImageSize, record.ImageQuality = recordedName(r.Size), recordedName(r.Quality)
			},
		},
		prepare: checkImageSize,
		call: func(ctx context.Context, b Forwarder, r *ImageRequest) (*ImageResponse, error) {
			return call(b, ctx, r)
		},
		facts: func(r *ImageResponse) replyFacts {
			return replyFacts{usage: r.Usage, units: imageUnits(len(r.Data))}
		},
		check:        checkImages,
		size:         (*ImageResponse).size,
		convertReply: convertImages,
		completeReply: func(r *ImageResponse, record *UsageRecord, _ *Usage) {
			r.Created = cmp.Or(r.Created, record.Time.Unix())
		},
	}
}

// decodeImages decodes POST /v1/images/generations.
func decodeImages(
	ctx context.Context,
	_ *http.Request,
	body []byte,
) (*ImageRequest, func(b []byte, r *ImageResponse) ([]byte, error), error) {
	req := new(ImageRequest)
	if err := decodeRequest(body, imageRequestJSON, req); err != nil {
		return nil, nil, err
	}
	if err := checkUnknownMembers(ctx, req.Extra); err != nil {
		return nil, nil, err
	}
	if err := req.checkEmpty(body); err != nil {
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
func checkImageSize(ctx context.Context, b Forwarder, r *ImageRequest) error {
	if r.Size == "" || r.Size == ImageSizeAuto {
		return nil
	}
	sizes, err := b.ImageSizes(ctx, r.Model)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return err
	case len(sizes) > 0 && !slices.Contains(sizes, r.Size):
		return errInvalidValue("size", r.Size, sizes...)
	}
	return nil
}

func checkImages(_ *ImageRequest, r *ImageResponse) error {
	if r == nil || len(r.Data) == 0 {
		return errNoImage
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
func convertImages(q *request, asked *ImageRequest, r *ImageResponse) error {
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
func convertImage(q *request, m *Image, format string) error {
	if format == ImageFormatBase64 {
		return m.convertToData()
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
func (m *Image) convertToData() (err error) {
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

func (r *ImageResponse) size() int {
	n := r.Extra.size()
	for i := range r.Data {
		n += r.Data[i].size()
	}
	return n
}

func (m *Image) size() int {
	return elementSize + len(m.URL) + len(m.Data) + len(m.RevisedPrompt) + m.Extra.size()
}

type imageDescriber struct{ *ImageRequest }

func (r imageDescriber) describe(d *description) {
	d.stream, d.params.Choices, d.params.Messages = r.Stream, r.Count(), 1
}

// image counts the tokens of the prompt of an image request.
func (c tokenEstimator) image(r *ImageRequest) int {
	n := c.text(r.Prompt) + c.extra(r.Extra)
	for _, s := range []string{r.Model, r.Size, r.Quality, r.ResponseFormat} {
		n += c.label(s)
	}
	for _, f := range r.files() {
		n += c.file(f)
	}
	return n
}

// BindImages binds a route to images, with [ScopeImages]. decode checks the request by
// [ImageRequest.Validate]. The images that encode gets have either a URL or Data, as the
// ResponseFormat of the request asks. newEncoder returns the encoder of the reply to a request with
// Stream, and must not keep the request; nil means that replies are always whole. If the Backend is
// no [ImageGenerator], the client gets a 404. See "Protocols" in the package documentation.
func BindImages(decode func(ctx context.Context, r *http.Request, body []byte) (
	req *ImageRequest, encode func(b []byte, reply *ImageResponse) ([]byte, error), err error),
	newEncoder func(req *ImageRequest) ImageEncoder,
) Binding {
	mustBeSet(decode != nil)
	return imagesOperation.bind(func(q *request) error {
		req, encode, err := decodeBody(q, decode)
		if err != nil {
			return err
		}
		return serveImages(q, imagesOperation, imageStreams, req, encode, newEncoder)
	})
}

var (
	_ ImageGenerator = Forwarder{}
	_ ImageSizer     = Forwarder{}
)

// GenerateImages calls the method of the wrapped [ImageGenerator].
func (f Forwarder) GenerateImages(ctx context.Context, req *ImageRequest) (*ImageResponse, error) {
	if b, ok := f.Backend.(ImageGenerator); ok {
		return b.GenerateImages(ctx, req)
	}
	return nil, unsupported("generate images")
}

// ImageSizes calls the method of the wrapped [ImageSizer].
func (f Forwarder) ImageSizes(ctx context.Context, model string) ([]string, error) {
	if b, ok := f.Backend.(ImageSizer); ok {
		return b.ImageSizes(ctx, model)
	}
	return nil, unsupported("list image sizes")
}
