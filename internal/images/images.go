// Package images has what the endpoints share whose replies are images: generations and edits.
package images

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/internal/unsupported"
	"github.com/llmhttp/llmhttp/llm"
)

// CountTokens counts the tokens of the prompt of a request.
func CountTokens(c tokens.Estimator, r *llm.ImageRequest) int {
	n := c.Text(r.Prompt) + c.Extra(r.Extra)
	for _, s := range []string{r.Model, r.Size, r.Quality, r.ResponseFormat} {
		n += c.Label(s)
	}
	return n
}

// CheckSize refuses a size that the model does not allow. sizes is the method of an ImageSizer; its error
// wraps [errors.ErrUnsupported] if the Backend is none.
func CheckSize(r *llm.ImageRequest, sizes func(model string) ([]string, error)) error {
	if r.Size == "" || r.Size == llm.ImageSizeAuto {
		return nil
	}
	allowed, err := sizes(r.Model)
	switch {
	case unsupported.Is(err):
		return nil
	case err != nil:
		return err
	case len(allowed) > 0 && !slices.Contains(allowed, r.Size):
		return invalid.Value("size", r.Size, allowed...)
	}
	return nil
}

var errNoImage = errors.New("llmhttp: the Backend returned no image")

// CheckReply returns an error if a whole reply, which may be nil, has no image.
func CheckReply(r *llm.ImageResponse) error {
	if r == nil || len(r.Data) == 0 {
		return errNoImage
	}
	return nil
}

// ReplySize returns about how many bytes a reply has.
func ReplySize(r *llm.ImageResponse) int {
	n := jsonwire.ExtraSize(r.Extra)
	for i := range r.Data {
		n += size(&r.Data[i])
	}
	return n
}

func size(m *llm.Image) int {
	return texts.ElementSize + len(m.URL) + len(m.Data) + len(m.RevisedPrompt) + jsonwire.ExtraSize(m.Extra)
}

// Convert gives the images of a reply the format that the client asked for; empty means what the Backend
// gave. url returns the URL of one of which there is only the data. r is changed, but not what it refers to.
func Convert(r *llm.ImageResponse, format string, url func(data []byte) (string, error)) error {
	r.Data = slices.Clone(r.Data)
	for i := range r.Data {
		if err := convert(&r.Data[i], format, url); err != nil {
			return err
		}
	}
	return nil
}

func convert(m *llm.Image, format string, url func(data []byte) (string, error)) (err error) {
	switch {
	case format == llm.ImageFormatBase64:
		return convertToData(m)
	case m.URL == "" && len(m.Data) == 0:
		return errors.New("llmhttp: the Backend returned an image without URL or Data")
	case format == "":
		return nil
	}
	if m.URL == "" {
		if m.URL, err = url(m.Data); err != nil {
			return err
		}
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
