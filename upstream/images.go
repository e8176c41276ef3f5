package upstream

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// GenerateImages implements [llmhttp.ImageGenerator]. An image whose address
// is of no use to the client is fetched, if Options.ImageHosts allows it.
func (b *Backend) GenerateImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	model := modelName{req.Model, b.serverModel(req.Model)}
	r := *req
	r.Model = model.theirs
	if b.opts.OmitImageFormat {
		r.ResponseFormat = ""
	}
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, err
	}
	resp := new(llmhttp.ImageResponse)
	var from *call
	err = b.fetch(ctx, b.images, body, model, func(c *call, reply []byte) error {
		from = c
		if err := resp.UnmarshalJSON(reply); err != nil {
			return err
		}
		if len(resp.Data) == 0 {
			return errors.New("there is no image in it")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Usage = reported(resp.Usage)
	if err := b.settleImages(ctx, from, resp.Data, req.ResponseFormat); err != nil {
		return nil, err
	}
	return resp, nil
}

// maxFetches is how many images are fetched for a request: as many as it can ask
// for. A server may send more, but not make the Backend fetch them.
const maxFetches = 10

// settleImages makes the images such that the client can have them in the
// format it wants. Those to be fetched are fetched at the same time.
func (b *Backend) settleImages(ctx context.Context, c *call, images []llmhttp.Image, format string) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.ImageTimeout)
	defer cancel()
	faults := make([]error, len(images))
	var wg sync.WaitGroup
	fetches := 0
	for i := range images {
		m := &images[i]
		address, err := b.addressToFetch(m, format)
		if err == nil && address != nil {
			if fetches++; fetches > maxFetches {
				err = errors.New("there are too many to be fetched")
			}
		}
		if err != nil {
			faults[i] = err
			cancel()
			break
		}
		if address == nil {
			continue
		}
		wg.Go(func() {
			if m.Data, faults[i] = b.fetchImage(ctx, address); faults[i] == nil {
				m.URL = ""
			} else {
				cancel()
			}
		})
	}
	wg.Wait()
	if c.client.Err() != nil {
		return context.Cause(c.client)
	}
	var fault error
	for _, err := range faults {
		if err != nil && (fault == nil || errors.Is(fault, context.Canceled)) { // which is what another's does to it
			fault = err
		}
	}
	switch {
	case fault == nil:
		return nil
	case errors.Is(fault, context.DeadlineExceeded):
		return c.failure(http.StatusGatewayTimeout, messageTimeout, "fetching an image", fault)
	}
	return c.failure(http.StatusBadGateway, messageFailed, "fetching an image", fault)
}

// addressToFetch returns where m is to be fetched from, or nil if it can be
// left as it is: there it is whole, or the client can fetch it itself.
func (b *Backend) addressToFetch(m *llmhttp.Image, format string) (*url.URL, error) {
	if len(m.Data) == 0 {
		m.Data = nil
	}
	if m.URL == "" {
		if m.Data == nil {
			return nil, errors.New("it has neither data nor an address")
		}
		return nil, nil
	}
	if strings.HasPrefix(m.URL, "data:") {
		if m.Data == nil {
			_, text, ok := strings.Cut(m.URL, ";base64,")
			data, err := base64.StdEncoding.DecodeString(text)
			switch {
			case !ok || err != nil:
				return nil, errors.New("its data: URL is not base64")
			case len(data) == 0:
				return nil, errors.New("its data: URL is empty")
			}
		}
		return nil, nil
	}
	u, err := b.base.Parse(m.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("its address is not one of http or https")
	}
	own := hostOf(u) == hostOf(b.base)
	switch {
	case m.Data != nil:
		if own || format == llmhttp.ImageFormatBase64 {
			m.URL = ""
		}
		return nil, nil
	case format != llmhttp.ImageFormatBase64 && !own:
		return nil, nil
	case !b.allowsImage(u):
		if own {
			return nil, errors.New("its address is the server's own, which is not in Options.ImageHosts")
		}
		return nil, errors.New("its host is not in Options.ImageHosts")
	}
	return u, nil
}

// hostOf returns the name of the host of u, as it is compared.
func hostOf(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }

// isHostPattern reports whether s is as Options.ImageHosts has it.
func isHostPattern(s string) bool {
	u, err := url.Parse("http://" + strings.TrimPrefix(s, "*."))
	return err == nil && u.Hostname() != "" && u.Host == strings.TrimPrefix(s, "*.") && !strings.Contains(u.Host, "*")
}

// allowsImage reports whether Options.ImageHosts has the host of u.
func (b *Backend) allowsImage(u *url.URL) bool {
	standard := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	port := u.Port()
	if port == "" {
		port = standard
	}
	for _, pattern := range b.opts.ImageHosts {
		below := strings.HasPrefix(pattern, "*.")
		allowed := &url.URL{Host: strings.TrimPrefix(pattern, "*.")}
		want := allowed.Port()
		if want == "" {
			want = standard
		}
		name, host := hostOf(allowed), hostOf(u)
		if port == want && (!below && host == name || below && strings.HasSuffix(host, "."+name) && net.ParseIP(host) == nil) {
			return true
		}
	}
	return false
}

// fetchImage returns the image at an address that is allowed. It sends neither
// a key nor anything else of the server's.
func (b *Backend) fetchImage(ctx context.Context, u *url.URL) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("its address is not valid")
	}
	r.Header.Set("Accept", "image/*")
	r.Header.Set("User-Agent", "llmhttp")
	resp, err := b.pictures.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, b.opts.MaxImage+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > b.opts.MaxImage:
		return nil, errors.New("it is larger than Options.MaxImage")
	case len(data) == 0:
		return nil, errors.New("there is nothing at its address")
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), "image/") && !strings.HasPrefix(http.DetectContentType(data), "image/"):
		return nil, errors.New("what is at its address is not an image")
	}
	return data, nil
}
