package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// GenerateImages implements [llmhttp.ImageGenerator]. An image whose address
// the client cannot use is fetched, if Options.Images allows it.
func (b *Backend) GenerateImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	model := b.modelNames(req.Model)
	r := *req
	r.Model = model.server
	if b.opts.Images.OmitFormat {
		r.ResponseFormat = ""
	}
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	resp, format := new(llmhttp.ImageResponse), req.ResponseFormat
	err = b.fetchReply(ctx, b.images, body, model, func(c *call, reply []byte) error {
		if err := resp.UnmarshalJSON(reply); err != nil {
			return c.malformedReply(err)
		}
		if err := c.reportedError(reply, resp.Extra["error"], len(resp.Data) > 0); err != nil {
			return err
		}
		if len(resp.Data) == 0 {
			return c.invalidReply("the reply has no images")
		}
		return c.resolveImages(resp.Data, format)
	})
	if err != nil {
		return nil, err
	}
	delete(resp.Extra, "error")
	return resp, nil
}

// maxFetches is how many images are fetched for one request. It is the largest
// number that a client can request; a server may return more.
const maxFetches = 10

// resolveImages fetches the images that the client cannot use without that, all at the
// same time. The first failure cancels the other fetches.
func (c *call) resolveImages(images []llmhttp.Image, format string) error {
	ctx, cancel := context.WithCancelCause(c.client)
	defer cancel(nil)
	if d := c.b.opts.Images.Timeout; d >= 0 {
		timer := time.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
		defer timer.Stop()
	}
	var wg sync.WaitGroup
	fetches := 0
	for i := range images {
		m := &images[i]
		u, err := c.b.urlToFetch(m, format)
		if err == nil && u != nil {
			if fetches++; fetches > maxFetches {
				err = errors.New("there are too many to be fetched")
			}
		}
		if err != nil {
			cancel(err)
			break
		}
		if u == nil {
			continue
		}
		wg.Go(func() {
			data, err := c.fetchImage(ctx, u)
			if err != nil {
				cancel(err)
			}
			m.Data, m.URL = data, ""
		})
	}
	wg.Wait()
	switch err := context.Cause(ctx); {
	case err == nil:
		return nil
	case c.client.Err() != nil:
		return c.clientCause()
	case errors.Is(err, context.DeadlineExceeded):
		return c.newFailure(http.StatusGatewayTimeout, messageTimeout, "fetching an image", err)
	default:
		return c.newFailure(http.StatusBadGateway, messageFailed, "fetching an image", err)
	}
}
