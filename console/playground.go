package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// KeyStore returns a KeyStore for the Handler of the API: that of keys, and with
// the requests of the console's playground. Those present no secret; the console
// calls the Handler in the same process and says with the context which key to
// use. So the playground needs no secrets in the browser, and limits, models and
// usage are those of the key. Requests from outside cannot do so.
func KeyStore(keys llmhttp.KeyManager) llmhttp.KeyStore { return playgroundKeys{keys} }

type playgroundKeys struct{ llmhttp.KeyManager }

// playgroundKey is the context key of the ID of the key to use.
type playgroundKey struct{}

// Lookup returns the key of the playground's user, or the key for secret.
func (s playgroundKeys) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	id, ok := ctx.Value(playgroundKey{}).(string)
	if !ok {
		return s.KeyManager.Lookup(ctx, secret)
	}
	info, err := s.Key(ctx, id)
	if err != nil {
		return nil, err
	}
	if status := info.Status(time.Now()); status != llmhttp.KeyActive {
		return nil, llmhttp.ErrKeyNotFound
	}
	return &info.Key, nil
}

// The modes of the playground and the endpoints that they call.
var playgroundModes = []struct{ name, title, path string }{
	{"chat", "Chat", "/v1/chat/completions"},
	{"images", "Images", "/v1/images/generations"},
	{"embeddings", "Embeddings", "/v1/embeddings"},
}

// playgroundPage is the data of playground.html.
type playgroundPage struct {
	Mode    string
	Modes   []link
	Keys    []llmhttp.KeyInfo
	KeyID   string
	BaseURL string // of the API, in examples
}

func (h *Handler) servePlayground(p *page) error {
	if h.opts.API == nil {
		return errNotFound
	}
	query := p.r.URL.Query()
	data := &playgroundPage{Mode: "chat", KeyID: query.Get("key"), BaseURL: h.apiURL(p.r)}
	for _, m := range playgroundModes {
		if query.Get("mode") == m.name {
			data.Mode = m.name
		}
	}
	for _, m := range playgroundModes {
		v := url.Values{"mode": {m.name}}
		if data.KeyID != "" {
			v.Set("key", data.KeyID)
		}
		data.Modes = append(data.Modes, link{"?" + v.Encode(), m.title, m.name == data.Mode})
	}
	var err error
	if data.Keys, err = h.usableKeys(p, data.KeyID); err != nil {
		return err
	}
	return p.render("playground.html", "Playground", data)
}

// usableKeys returns the newest keys that the user may use, and the key with the
// given ID if that is another one.
func (h *Handler) usableKeys(p *page, id string) ([]llmhttp.KeyInfo, error) {
	q := llmhttp.KeyQuery{Status: llmhttp.KeyActive, Newest: true, Limit: keysPerPage}
	if !p.user.Admin {
		q.Account = p.user.Account
	}
	keys, err := h.keys.ListKeys(p.r.Context(), q)
	if err != nil {
		return nil, err
	}
	if id != "" && !slices.ContainsFunc(keys, func(k llmhttp.KeyInfo) bool { return k.ID == id }) {
		info, err := h.keys.Key(p.r.Context(), id)
		if err == nil && p.user.sees(&info) && info.Status(time.Now()) == llmhttp.KeyActive {
			keys = append([]llmhttp.KeyInfo{info}, keys...)
		} else if err != nil && !errors.Is(err, llmhttp.ErrKeyNotFound) {
			return nil, err
		}
	}
	return slices.DeleteFunc(keys, func(k llmhttp.KeyInfo) bool { return !p.user.mayUse(&k) }), nil
}

func (h *Handler) apiURL(r *http.Request) string {
	if h.opts.APIURL != "" {
		return strings.TrimSuffix(h.opts.APIURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + "/v1"
}

// callAPI passes a request of the playground to the API, on behalf of the key
// that the query names. A page of another site cannot send one, because it
// cannot send JSON without asking first.
func (h *Handler) callAPI(p *page) error {
	path := "/v1/models"
	if p.r.Method == http.MethodPost {
		path = ""
		for _, m := range playgroundModes {
			if m.name == p.r.PathValue("endpoint") {
				path = m.path
			}
		}
	}
	if path == "" || h.opts.API == nil {
		return errNotFound
	}
	info, err := h.findUsableKey(p, p.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	p.h.opts.API.ServeHTTP(p.w, p.apiRequest(path, info.ID))
	return nil
}

// apiRequest returns a request for the API with the body of p. Of the headers it
// has only those that describe the body.
func (p *page) apiRequest(path, keyID string) *http.Request {
	r := p.r.WithContext(context.WithValue(p.r.Context(), playgroundKey{}, keyID))
	r.URL = &url.URL{Path: path}
	r.RequestURI = path
	r.Header = make(http.Header)
	for _, name := range []string{"Accept", "Content-Type", "Content-Length"} {
		if v := p.r.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	return r
}
