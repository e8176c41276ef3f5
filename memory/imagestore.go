// ImageStore.

package memory

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/option"
)

// An ImageStore is a store of images and the [http.Handler] that serves them. Each image is
// available for an hour at an address that cannot be guessed; anyone who knows the address may see
// the image. Create one with [NewImageStore]. Its methods are safe for concurrent use.
//
// The memory is bounded: if the images need more than MaxBytes, the oldest ones
// are dropped before their hour is over.
type ImageStore struct {
	// MaxBytes limits the size of all images together, in bytes. Zero means 128 MiB; negative means
	// no limit. It must not be changed after the first call of Put.
	MaxBytes int64

	base string

	mu     sync.Mutex // guards the fields below
	byName map[string]*storedImage
	queue  []*storedImage // in the order of their creation
	size   int64          // of all images, in bytes
}

var _ http.Handler = (*ImageStore)(nil)

type storedImage struct {
	name, mediaType string
	data            []byte
	created         time.Time
}

// size returns about how many bytes of memory the image needs.
func (m *storedImage) size() int64 { return int64(len(m.data)) + 512 }

func (m *storedImage) age() time.Duration { return time.Since(m.created) }

const (
	imageLifetime   = time.Hour
	defaultMaxBytes = 128 << 20 // of an ImageStore, and of a ResponseStore
)

// NewImageStore returns an empty store whose addresses begin with base, the URL at
// which clients reach the handler, such as "https://example.com/images/". A slash
// is added to base if it does not end in one.
//
// The path of a request may differ from that of base, for example behind
// [http.StripPrefix]: the handler looks only at the last segment.
func NewImageStore(base string) *ImageStore {
	if !strings.HasSuffix(base, "/") {
		base += "/"
	}
	return &ImageStore{base: base, byName: make(map[string]*storedImage)}
}

// Put stores a copy of data and returns its address. It can be used as
// [llmhttp.Options.ImageURL]. If mediaType is not that of an image, the data is
// served as application/octet-stream, which browsers do not display. Put fails
// only if data is larger than MaxBytes.
func (s *ImageStore) Put(ctx context.Context, data []byte, mediaType string) (string, error) {
	limit := option.Bound(s.MaxBytes, defaultMaxBytes)
	if int64(len(data)) > limit {
		return "", fmt.Errorf("memory: image of %d bytes exceeds the limit of %d bytes", len(data), limit)
	}
	served, _, err := mime.ParseMediaType(mediaType)
	if err != nil || !strings.HasPrefix(served, "image/") {
		served = "application/octet-stream"
	}
	m := &storedImage{
		name:      rand.Text() + extensions[served],
		mediaType: served,
		data:      bytes.Clone(data),
		created:   time.Now(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && (s.size+m.size() > limit || s.queue[0].age() >= imageLifetime) {
		oldest := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.size -= oldest.size()
		delete(s.byName, oldest.name)
	}
	s.queue = append(s.queue, m)
	s.size += m.size()
	s.byName[m.name] = m
	return s.base + m.name, nil
}

// extensions has the file name extensions of media types, for clients that save
// the images.
var extensions = map[string]string{
	"image/png":     ".png",
	"image/jpeg":    ".jpg",
	"image/webp":    ".webp",
	"image/gif":     ".gif",
	"image/svg+xml": ".svg",
	"image/avif":    ".avif",
}

// ServeHTTP serves the images at the addresses that Put returned. It replies with
// 404 to an address that is unknown or whose image has expired or was dropped,
// and with 405 to methods other than GET and HEAD.
func (s *ImageStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	s.mu.Lock()
	m := s.byName[name]
	s.mu.Unlock()
	if m == nil || m.age() >= imageLifetime {
		http.NotFound(w, r)
		return
	}
	left := imageLifetime - m.age()
	h := w.Header()
	h.Set("Content-Type", m.mediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox") // an SVG may contain a script
	h.Set("Cache-Control", "private, max-age="+strconv.Itoa(int(left/time.Second)))
	http.ServeContent(w, r, "", m.created, bytes.NewReader(m.data))
}
