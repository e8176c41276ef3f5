// Which images of a reply are fetched from their addresses, and how.

package upstream

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/contentencoding"
	"github.com/llmhttp/llmhttp/internal/images"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// maxFetches is how many images are fetched for one request. It is the largest
// number that a client can request; a server may return more.
const maxFetches = 10

// fetchImages fetches the images whose addresses the client cannot use, all at the same
// time. The first failure cancels the other fetches. Their memory is a part of that of the reply r.
func (b *Backend) fetchImages(r *reply.Reply, images []llm.Image, format string) error {
	ctx, cancel := context.WithCancelCause(r.Caller())
	defer cancel(nil)
	if d := b.opts.Images.Timeout; d >= 0 {
		timer := time.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
		defer timer.Stop()
	}
	var wg sync.WaitGroup
	fetches := 0
	for i := range images {
		m := &images[i]
		u, err := b.urlToFetch(m, format)
		if err == nil && u == nil {
			continue
		}
		fetches++
		if err == nil && fetches > maxFetches {
			err = errors.New("there are too many to be fetched")
		}
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			data, err := b.fetchImage(ctx, r, u)
			if err != nil {
				cancel(err)
			}
			m.Data, m.URL = data, ""
		})
	}
	wg.Wait()
	err := context.Cause(ctx)
	switch cause := r.CallerCause(); {
	case err == nil:
		return nil
	case cause != nil:
		return cause
	case errors.Is(err, context.DeadlineExceeded):
		return r.Timeout("fetching an image: timeout")
	}
	return r.Broken("fetching an image", err)
}

// urlToFetch returns the address from which m must be fetched, or nil if the client can
// use m as it is. If m has data as well, urlToFetch removes an address that the client
// cannot or need not use.
func (b *Backend) urlToFetch(m *llm.Image, format string) (*url.URL, error) {
	hasData := len(m.Data) > 0
	switch {
	case m.URL == "" && !hasData:
		return nil, errors.New("it has neither data nor an address")
	case m.URL == "":
		return nil, nil
	case strings.HasPrefix(m.URL, "data:"):
		if hasData {
			return nil, nil
		}
		return nil, checkDataURL(m.URL)
	}
	u, err := b.client.Base.Parse(m.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("its address is not one of http or https")
	}
	own := hostOf(u) == hostOf(b.client.Base)
	usable := !own && format != llm.ImageFormatBase64 // by the client
	switch {
	case hasData && !usable:
		m.URL = ""
		return nil, nil
	case hasData, usable:
		return nil, nil
	case b.allowsImage(u):
		return u, nil
	case own:
		return nil, errors.New("its address is the server's own, which is not in Options.Images.Hosts")
	}
	return nil, errors.New("its host is not in Options.Images.Hosts")
}

func checkDataURL(s string) error {
	_, text, ok := strings.Cut(s, ";base64,")
	data, err := base64.StdEncoding.DecodeString(text)
	switch {
	case !ok || err != nil:
		return errors.New("its data: URL is not base64")
	case len(data) == 0:
		return errors.New("its data: URL is empty")
	}
	return nil
}

// hostOf returns the host name of u in lower case and without a trailing dot.
func hostOf(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }

// allowsImage reports whether ImageOptions.Hosts has the host and port of u.
func (b *Backend) allowsImage(u *url.URL) bool {
	for _, pattern := range b.opts.Images.Hosts {
		base, below := strings.CutPrefix(pattern, "*.")
		allowed := &url.URL{Scheme: u.Scheme, Host: base}
		if portOf(u) != portOf(allowed) {
			continue
		}
		host, name := hostOf(u), hostOf(allowed)
		if !below && host == name || below && strings.HasSuffix(host, "."+name) && net.ParseIP(host) == nil {
			return true
		}
	}
	return false
}

// portOf returns the port of u, or the default port of its scheme.
func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// fetchImage fetches the image at u, a part of a reply. The request contains no key or header of the
// Backend.
func (b *Backend) fetchImage(ctx context.Context, of *reply.Reply, u *url.URL) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("its address is not valid")
	}
	r.Header.Set("Accept", "image/*")
	r.Header.Set("User-Agent", "llmhttp")
	reply.AskIdentity(r.Header)
	resp, err := b.imageTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	body, err := contentencoding.New(resp.Header, bufio.NewReader(resp.Body), nil)
	if err != nil {
		return nil, err
	}
	length := resp.ContentLength
	if body.Encoding() != "" {
		length = -1
	}
	data, err := bounded.ReadAll(of.Reserve(ctx, body), nil, length, b.opts.Images.MaxSize)
	switch {
	case errors.Is(err, bounded.ErrTooLarge):
		return nil, errors.New("it is larger than Options.Images.MaxSize, or all images are larger than Options.MaxReply")
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, errors.New("the body is empty")
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), "image/") && !strings.HasPrefix(images.MediaType(data), "image/"):
		return nil, errors.New("it is not an image")
	}
	return data, nil
}
