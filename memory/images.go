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
)

// Images is an [http.Handler] that serves images for an hour each, at
// addresses that nobody can guess: who has one may see the image. Use
// [NewImages] to make one. Its methods are safe for concurrent use.
//
// Its memory is bounded: when images need more than MaxBytes, the oldest are
// dropped before their time.
type Images struct {
	// MaxBytes bounds all images together, in bytes, and so each of them.
	// Zero or negative means 128 MiB. It must not be changed after the first
	// Put.
	MaxBytes int

	base string

	mu     sync.Mutex
	byName map[string]*storedImage
	queue  []*storedImage // the oldest first
	size   int            // in bytes
}

var _ http.Handler = (*Images)(nil)

type storedImage struct {
	name, mediaType string
	data            []byte
	created         time.Time
}

// size is what the image takes, in bytes, about.
func (m *storedImage) size() int { return len(m.data) + 512 }

func (m *storedImage) age() time.Duration { return time.Since(m.created) }

const imageLifetime = time.Hour

// NewImages returns Images whose addresses begin with base, which is where
// clients reach them: for Images mounted at "/images/" of a server, it is of
// the form "https://example.com/images/". If there is no slash at its end, one
// is added.
//
// A request's path may be different, as where something in front of the server
// rewrites it: only what follows its last slash counts.
func NewImages(base string) *Images {
	if !strings.HasSuffix(base, "/") {
		base += "/"
	}
	return &Images{base: base, byName: make(map[string]*storedImage)}
}

// Put keeps a copy of an image and returns its address. It is fit for
// [llmhttp.Options.ImageURL]. An image whose mediaType is not one of images is
// served as bytes that browsers do not show. Put fails only if the image is
// larger than MaxBytes.
func (s *Images) Put(ctx context.Context, data []byte, mediaType string) (string, error) {
	limit := s.MaxBytes
	if limit <= 0 {
		limit = 128 << 20
	}
	if len(data) > limit {
		return "", fmt.Errorf("memory: an image of %d bytes exceeds the %d that are kept", len(data), limit)
	}
	known, _, err := mime.ParseMediaType(mediaType)
	if err != nil || !strings.HasPrefix(known, "image/") {
		known = "application/octet-stream"
	}
	m := &storedImage{
		name:      rand.Text() + extensions[known],
		mediaType: known,
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

// extensions are for those who save images.
var extensions = map[string]string{
	"image/png":  ".png",
	"image/jpeg": ".jpg",
	"image/webp": ".webp",
	"image/gif":  ".gif",
}

// ServeHTTP serves GET and HEAD of the addresses that Put returned. What has
// expired or was dropped is not found.
func (s *Images) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox") // an SVG may hold a script
	h.Set("Cache-Control", "private, max-age="+strconv.Itoa(int(left/time.Second)))
	http.ServeContent(w, r, "", m.created, bytes.NewReader(m.data))
}
