package llmhttp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// serveImages serves POST /v1/images/generations.
func (q *request) serveImages() error {
	req := new(ImageRequest)
	if err := q.readJSON(req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	if err := q.useModel(req.Model); err != nil {
		return err
	}
	if err := q.checkImageSize(req); err != nil {
		return err
	}
	if q.key.limitsTokens() {
		q.account.prompt = q.counter().text(req.Prompt)
	}
	if err := q.account.admit(max(q.account.prompt, 1)); err != nil {
		return err
	}
	format := req.ResponseFormat
	resp, err := q.generateImages(req)
	if err != nil {
		return err
	}
	answer := *resp
	answer.Data = slices.Clone(resp.Data)
	if answer.Created == 0 {
		answer.Created = q.account.record.Time.Unix()
	}
	for i := range answer.Data {
		if err := q.convertImage(&answer.Data[i], format); err != nil {
			return q.cause(err)
		}
	}
	q.account.settle()
	return q.replyJSON(&answer)
}

// checkImageSize refuses a size that the model does not allow.
func (q *request) checkImageSize(req *ImageRequest) error {
	if err := q.startBackend(); err != nil {
		return err
	}
	sizes, err := q.h.backend.ImageSizes(q.ctx, req.Model)
	q.res.backendReturned()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return q.cause(err)
	case len(sizes) > 0 && !slices.Contains(sizes, req.Size):
		return invalidValue("size", req.Size, sizes...)
	}
	return nil
}

// generateImages calls the Backend. What it returns is billed, even if the
// client has left.
func (q *request) generateImages(req *ImageRequest) (*ImageResponse, error) {
	if err := q.startBackend(); err != nil {
		return nil, err
	}
	q.bill()
	resp, err := q.h.backend.GenerateImages(q.ctx, req)
	q.res.backendReturned()
	if err != nil {
		return nil, q.cause(err)
	}
	if resp != nil {
		q.account.reported, q.account.record.Images = resp.Usage, len(resp.Data)
	}
	if err := q.cause(nil); err != nil {
		return nil, err
	}
	if resp == nil || len(resp.Data) == 0 {
		return nil, errors.New("llmhttp: the Backend returned no image")
	}
	return resp, nil
}

// convertImage gives m the form that the client asked for.
func (q *request) convertImage(m *Image, format string) error {
	if format == ImageFormatBase64 {
		m.RevisedPrompt = "" // OpenAI sends it beside a URL only
		if m.Data == nil {
			data, err := decodeDataURL(m.URL)
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
		u, err := q.imageURL(m.Data)
		if err != nil {
			return err
		}
		m.URL = u
	}
	m.Data = nil
	return nil
}

// imageURL returns a URL for an image.
func (q *request) imageURL(data []byte) (string, error) {
	mediaType := http.DetectContentType(data)
	if q.h.opts.ImageURL == nil {
		return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(data), nil
	}
	if err := q.startBackend(); err != nil {
		return "", err
	}
	u, err := q.h.opts.ImageURL(q.ctx, data, mediaType)
	q.res.backendReturned()
	if err != nil {
		return "", fmt.Errorf("llmhttp: ImageURL: %w", err)
	}
	return u, nil
}

// decodeDataURL returns the content of a data: URL. The Handler does not fetch
// other URLs; a Backend that gets one has to fetch it itself.
func decodeDataURL(u string) ([]byte, error) {
	rest, ok := strings.CutPrefix(u, "data:")
	_, text, comma := strings.Cut(rest, ";base64,")
	if !ok || !comma {
		return nil, errors.New("llmhttp: the client asked for b64_json, but the Backend returned a URL")
	}
	return base64.StdEncoding.DecodeString(text)
}
