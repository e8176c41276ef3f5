package llmhttp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
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

// An ImageRequest is the body of POST /v1/images/generations. Those a Handler
// passes to a Backend are checked, and Size and ResponseFormat are set.
type ImageRequest struct {
	Model, Prompt  string
	N              *int   // how many images, 1 to 10; nil means 1
	Size           string // "<width>x<height>" in pixels; the format's default is 1024x1024
	Quality        string // standard, hd, or empty for the Backend's choice
	ResponseFormat string // ImageFormatURL or ImageFormatBase64: what the client gets; the Backend may return either
	Extra          Extra
}

// Count returns how many images the client asked for.
func (r *ImageRequest) Count() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r ImageRequest) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a request without checking it.
func (r *ImageRequest) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

func (r *ImageRequest) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("model")
	e.String(r.Model)
	e.Name("prompt")
	e.String(r.Prompt)
	e.IntMember("n", r.N)
	e.StringMember("size", r.Size)
	e.StringMember("quality", r.Quality)
	e.StringMember("response_format", r.ResponseFormat)
	e.Extra(r.Extra, "model", "prompt", "n", "size", "quality", "response_format")
	e.Token('}')
}

func (r *ImageRequest) decode(d *jsonwire.Decoder) {
	var numbers *jsonwire.Numbers
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "model":
			r.Model = d.OptString()
		case "prompt":
			r.Prompt = d.OptString()
		case "n":
			r.N = d.IntPtr(&numbers)
		case "size":
			r.Size = d.OptString()
		case "quality":
			r.Quality = d.OptString()
		case "response_format":
			r.ResponseFormat = d.OptString()
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

// An Image is one picture. A Backend sets URL or Data.
type Image struct {
	URL           string // where the client finds it
	Data          []byte // an encoded image, such as a PNG; b64_json on the wire
	RevisedPrompt string // the prompt as the model rewrote it, if it did
	Extra         Extra
}

// An ImageResponse is what an [ImageGenerator] drew.
type ImageResponse struct {
	Created int64 // Unix time in seconds; if zero, the Handler sets it
	Data    []Image
	Usage   *Usage // input_tokens and output_tokens on the wire; nil if images are not counted in tokens
	Extra   Extra
}

// MarshalJSON encodes m.
func (m Image) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON decodes an image.
func (m *Image) UnmarshalJSON(data []byte) error { return unmarshal(data, m) }

func (m *Image) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.StringMember("url", m.URL)
	if m.Data != nil {
		e.Name("b64_json")
		e.Token('"')
		e.Buf = base64.StdEncoding.AppendEncode(e.Buf, m.Data)
		e.Token('"')
	}
	e.StringMember("revised_prompt", m.RevisedPrompt)
	e.Extra(m.Extra, "url", "b64_json", "revised_prompt")
	e.Token('}')
}

func (m *Image) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "url":
			m.URL = d.OptString()
		case "b64_json":
			if d.Null() {
				continue
			}
			text := d.StringView()
			data, err := base64.StdEncoding.AppendDecode([]byte{}, text)
			if err != nil {
				d.Invalid("a string of base64", "another string")
			}
			m.Data = data
		case "revised_prompt":
			m.RevisedPrompt = d.OptString()
		default:
			m.Extra.keep(d, o.Name)
		}
	}
}

// MarshalJSON encodes r.
func (r ImageResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a response.
func (r *ImageResponse) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

func (r *ImageResponse) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("created")
	e.Int(r.Created)
	e.Name("data")
	e.Token('[')
	for i := range r.Data {
		e.Element()
		r.Data[i].encode(e)
	}
	e.Token(']')
	if u := r.Usage; u != nil {
		e.Name("usage")
		e.Token('{')
		e.Name("input_tokens")
		e.Int(int64(u.PromptTokens))
		e.Name("output_tokens")
		e.Int(int64(u.CompletionTokens))
		e.Name("total_tokens")
		e.Int(int64(u.total()))
		e.Extra(u.Extra, "input_tokens", "output_tokens", "total_tokens")
		e.Token('}')
	}
	e.Extra(r.Extra, "created", "data", "usage")
	e.Token('}')
}

func (r *ImageResponse) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "created":
			r.Created = decodeTime(d)
		case "data":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next(); {
				r.Data = append(r.Data, Image{})
				r.Data[len(r.Data)-1].decode(d)
			}
		case "usage":
			r.Usage = decodeImageUsage(d)
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

func decodeImageUsage(d *jsonwire.Decoder) *Usage {
	if d.Null() {
		return nil
	}
	u := new(Usage)
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "input_tokens":
			u.PromptTokens = optInt(d)
		case "output_tokens":
			u.CompletionTokens = optInt(d)
		case "total_tokens":
			u.TotalTokens = optInt(d)
		default:
			u.Extra.keep(d, o.Name)
		}
	}
	return u
}

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
