package llm

import (
	"cmp"
	"iter"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

const (
	maxImages        = 10
	maxPartialImages = 3
	maxPromptChars   = 32000
)

// ImageSizeAuto is the [ImageRequest.Size] that leaves the size to the Backend.
const ImageSizeAuto = "auto"

// The values of [ImageRequest.ResponseFormat].
const (
	ImageFormatURL    = "url"
	ImageFormatBase64 = "b64_json"
)

// An ImageRequest is the body of POST /v1/images/generations. A Backend gets it with a Size. The Request of package imageedit has its fields too.
type ImageRequest struct {
	Model          string `json:"model"`
	Prompt         string `json:"prompt"`
	N              *int   `json:"n,omitzero"`               // number of images, 1 to 10; nil means 1
	Size           string `json:"size,omitzero"`            // "<width>x<height>" in pixels or ImageSizeAuto; the format's default is 1024x1024
	Quality        string `json:"quality,omitzero"`         // standard, hd, low, medium, high, xhigh, max, auto, or empty for the Backend's choice
	ResponseFormat string `json:"response_format,omitzero"` // ImageFormatURL or ImageFormatBase64, which the client then gets whichever the Backend returns; empty for what it returns
	Stream         bool   `json:"stream,omitzero"`          // the client gets images while they are made, as base64 whatever the ResponseFormat is: see ImageStreamer
	PartialImages  *int   `json:"partial_images,omitzero"`  // how often a stream shows an image that is not complete, 0 to 3; nil means 0
	Extra          Extra  `json:"-"`
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
func (r ImageRequest) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(imageRequestJSON, &r)
}

// UnmarshalJSON decodes a request without checking it.
func (r *ImageRequest) UnmarshalJSON(data []byte) error {
	return param.UnmarshalRequest(data, imageRequestJSON, r)
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
func (m Image) MarshalJSON() ([]byte, error) { return jsonwire.MarshalValue(imageJSON, &m) }

// UnmarshalJSON decodes an image leniently.
func (m *Image) UnmarshalJSON(data []byte) error { return param.UnmarshalReply(data, imageJSON, m) }

// An ImageResponse is the reply of an ImageGenerator, or of an editor of images. It is decoded leniently:
// see [ChatChunk].
type ImageResponse struct {
	Created int64   `json:"created"` // Unix time in seconds; if zero, it is set
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

// MarshalJSON encodes r.
func (r ImageResponse) MarshalJSON() ([]byte, error) {
	return jsonwire.MarshalValue(imageResponseJSON, &r)
}

// UnmarshalJSON decodes a response leniently.
func (r *ImageResponse) UnmarshalJSON(data []byte) error {
	return param.UnmarshalReply(data, imageResponseJSON, r)
}

// Validate returns an *Error for the first parameter that the format does not allow, and sets
// Size if it is empty. Functions that decode requests call it: see
// BindImages.
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
	r.Size = cmp.Or(r.Size, "1024x1024")
	if r.Size != ImageSizeAuto && !sizePattern.MatchString(r.Size) {
		return param.Form("size", r.Size, bounds.SizeForm)
	}
	if r.Quality != "" && !slices.Contains(bounds.ImageQualities, r.Quality) {
		return param.Value("quality", r.Quality, bounds.ImageQualities...)
	}
	switch r.ResponseFormat {
	case "", ImageFormatURL, ImageFormatBase64:
	default:
		return param.Value("response_format", r.ResponseFormat, ImageFormatURL, ImageFormatBase64)
	}
	return nil
}

var sizePattern = regexp.MustCompile(`^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$`)

// EndUser returns the end user whom the client names, as that of a [ChatRequest].
func (r *ImageRequest) EndUser() string { return param.EndUser(r.Extra) }

// An ImageStream is the reply to an [ImageRequest] with Stream: its chunks in order, and then at most
// one error. A stream without a complete image is an error too. The rules of a [ChatStream] hold.
type ImageStream = iter.Seq2[*ImageChunk, error]

// An ImageChunk is a part of an [ImageStream]. What it refers to must not be changed any more.
type ImageChunk struct {
	// Image is an image with Data, or with a data: URL; nil if there is none in this chunk. Members of
	// its Extra are members of the event, such as size and output_format; those that clients
	// expect are made of the request if it lacks them.
	Image *Image

	// Partial tells that Image is not complete: it shows what the next complete image is going to be.
	Partial bool

	Usage *Usage // of the request so far, as in a [ChatChunk]; nil if it is not known
}
