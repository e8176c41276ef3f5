package llmhttp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxImages      = 10
	maxPromptChars = 32000
)

// The values of [ImageRequest.ResponseFormat].
const (
	ImageFormatURL    = "url"
	ImageFormatBase64 = "b64_json"
)

// An ImageRequest is the body of POST /v1/images/generations. A Handler checks
// requests before it passes them to a Backend, and sets Size and ResponseFormat.
type ImageRequest struct {
	Model          string `json:"model"`
	Prompt         string `json:"prompt"`
	N              *int   `json:"n,omitzero"`               // number of images, 1 to 10; nil means 1
	Size           string `json:"size,omitzero"`            // "<width>x<height>" in pixels; the format's default is 1024x1024
	Quality        string `json:"quality,omitzero"`         // standard, hd, or empty for the Backend's choice
	ResponseFormat string `json:"response_format,omitzero"` // ImageFormatURL or ImageFormatBase64: what the client gets; the Backend may return either
	Extra          Extra  `json:",embed"`
}

func (r *ImageRequest) fields() any {
	type fields ImageRequest
	return (*fields)(r)
}

// Count returns the number of images that the client asked for.
func (r *ImageRequest) Count() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r ImageRequest) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a request without checking it.
func (r *ImageRequest) UnmarshalJSON(data []byte) error { return unmarshalRequest(data, r) }

// An Image is one of the images of an [ImageResponse]. A Backend sets URL or Data.
type Image struct {
	URL           string `json:"url,omitzero"`            // where the client can fetch it
	Data          []byte `json:"b64_json,omitzero"`       // an encoded image, such as a PNG; in JSON it is base64
	RevisedPrompt string `json:"revised_prompt,omitzero"` // the prompt as the model rewrote it, if it did
	Extra         Extra  `json:",embed"`
}

func (m *Image) fields() any {
	type fields Image
	return (*fields)(m)
}

// MarshalJSON encodes m.
func (m Image) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON decodes an image leniently.
func (m *Image) UnmarshalJSON(data []byte) error { return unmarshalReply(data, m) }

// An ImageResponse is the reply of an [ImageGenerator]. It is decoded leniently:
// see [ChatChunk].
type ImageResponse struct {
	Created int64   `json:"created"` // Unix time in seconds; if zero, the Handler sets it
	Data    []Image `json:"data"`
	Usage   *Usage  `json:"usage,omitzero"` // with input_tokens and output_tokens; nil if images are not counted in tokens
	Extra   Extra   `json:",embed"`
}

// An imageUsage is the Usage of images.
type imageUsage struct {
	PromptTokens            int                     `json:"input_tokens"`
	CompletionTokens        int                     `json:"output_tokens"`
	TotalTokens             int                     `json:"total_tokens"`
	PromptTokensDetails     PromptTokensDetails     `json:"-"`
	CompletionTokensDetails CompletionTokensDetails `json:"-"`
	Extra                   Extra                   `json:",embed"`
}

func (u *imageUsage) fields() any {
	type fields imageUsage
	return (*fields)(u)
}

type imageResponseFields ImageResponse

// An imageResponse is the JSON of an ImageResponse.
type imageResponse struct {
	Response *imageResponseFields `json:",embed"`
	Usage    *imageUsage          `json:"usage,omitzero"`
}

func (r *ImageResponse) fields() any {
	view := &imageResponse{Response: (*imageResponseFields)(r)}
	if r.Usage != nil {
		u := *r.Usage
		u.TotalTokens = u.total()
		view.Usage = (*imageUsage)(&u)
	}
	return view
}

func (r *ImageResponse) decode(d *decoder, dec *jsontext.Decoder) error {
	view := &imageResponse{Response: (*imageResponseFields)(r)}
	err := jsonv2.UnmarshalDecode(dec, view)
	r.Usage = reported((*Usage)(view.Usage))
	return err
}

// MarshalJSON encodes r.
func (r ImageResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a response leniently.
func (r *ImageResponse) UnmarshalJSON(data []byte) error { return unmarshalReply(data, r) }

func (r *ImageRequest) check() error {
	switch n := utf8.RuneCountInString(r.Prompt); {
	case r.Model == "":
		return missing("model")
	case n == 0:
		return missing("prompt")
	case n > maxPromptChars:
		return longString("prompt", maxPromptChars, n)
	}
	if err := checkInt("n", r.N, 1, maxImages); err != nil {
		return err
	}
	switch r.Size {
	case "":
		r.Size = "1024x1024"
	default:
		if !isSize(r.Size) {
			return invalidText("size", r.Size, "a width and a height in pixels, such as '1024x1024'")
		}
	}
	switch r.Quality {
	case "", "standard", "hd":
	default:
		return invalidValue("quality", r.Quality, "standard", "hd")
	}
	switch r.ResponseFormat {
	case "":
		r.ResponseFormat = ImageFormatURL
	case ImageFormatURL, ImageFormatBase64:
	default:
		return invalidValue("response_format", r.ResponseFormat, ImageFormatURL, ImageFormatBase64)
	}
	return nil
}

// isSize reports whether s is of the form <width>x<height>.
func isSize(s string) bool {
	width, height, ok := strings.Cut(s, "x")
	return ok && isPixels(width) && isPixels(height)
}

func isPixels(s string) bool {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// images serves POST /v1/images/generations.
func (x *exchange) images() error {
	req := new(ImageRequest)
	if err := x.readJSON(req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	if err := x.useModel(req.Model); err != nil {
		return err
	}
	if err := x.wait(); err != nil {
		return err
	}
	sizes, err := x.h.backend.ImageSizes(&x.ctx, req.Model)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return x.backendError(err)
	case len(sizes) > 0 && !slices.Contains(sizes, req.Size):
		return invalidValue("size", req.Size, sizes...)
	}
	if x.limitsTokens() {
		x.prompt = x.count(req.Prompt)
	}
	if err := x.admit(max(x.prompt, 1)); err != nil {
		return err
	}
	if err := x.work(); err != nil {
		return err
	}
	format := req.ResponseFormat
	resp, err := x.h.backend.GenerateImages(&x.ctx, req)
	if err != nil {
		return x.backendError(err)
	}
	if resp != nil { // it is to be paid for, whoever is left to see it
		x.reported, x.record.Images = resp.Usage, len(resp.Data)
	}
	if err := x.cause(); err != nil {
		return err
	}
	if resp == nil || len(resp.Data) == 0 {
		return errors.New("llmhttp: the Backend returned no image")
	}
	answer := *resp
	answer.Data = slices.Clone(resp.Data)
	if answer.Created == 0 {
		answer.Created = x.record.Time.Unix()
	}
	for i := range answer.Data {
		if err := x.convertImage(&answer.Data[i], format); err != nil {
			return x.backendError(err)
		}
	}
	x.settle()
	return x.reply(&answer)
}

// convertImage gives m the form the client asked for.
func (x *exchange) convertImage(m *Image, format string) error {
	if format == ImageFormatBase64 {
		m.RevisedPrompt = "" // shown beside an address only
		if m.Data == nil {
			data, err := fromDataURL(m.URL)
			if err != nil {
				return err
			}
			m.Data = data
		}
		m.URL = ""
		return nil
	}
	if m.URL == "" {
		if len(m.Data) == 0 {
			return errors.New("llmhttp: the Backend returned an image without URL or Data")
		}
		mediaType := http.DetectContentType(m.Data)
		if x.h.opts.ImageURL == nil {
			m.URL = "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(m.Data)
		} else {
			if err := x.wait(); err != nil { // it has its own time
				return err
			}
			address, err := x.h.opts.ImageURL(&x.ctx, m.Data, mediaType)
			if err != nil {
				return fmt.Errorf("llmhttp: ImageURL: %w", err)
			}
			m.URL = address
		}
	}
	m.Data = nil
	return nil
}

// fromDataURL returns what a data: URL holds. A Backend that knows an image
// only by an address elsewhere has to fetch it itself.
func fromDataURL(u string) ([]byte, error) {
	rest, ok := strings.CutPrefix(u, "data:")
	_, text, comma := strings.Cut(rest, ";base64,")
	if !ok || !comma {
		return nil, errors.New("llmhttp: the client asked for b64_json, but the Backend returned an image by its address")
	}
	return base64.StdEncoding.DecodeString(text)
}
