package llmhttp

import (
	"encoding/base64"

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
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "model":
			r.Model = d.OptString()
		case "prompt":
			r.Prompt = d.OptString()
		case "n":
			r.N = d.IntPtr()
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
				d.Invalid("a string of base64")
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
