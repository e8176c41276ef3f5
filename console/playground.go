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

// KeyStore returns the KeyStore for the Handler of the API. It finds keys by their
// secrets, as the KeyManager does. Requests of the console's playground have no secret: the
// console calls the Handler in the same process, with the ID of the key in the
// context, which requests from outside cannot set. So the browser needs no secret,
// and limits, models and usage are those of the key.
func KeyStore(keys llmhttp.KeyManager) llmhttp.KeyStore { return playgroundKeyStore{keys} }

type playgroundKeyStore struct{ llmhttp.KeyManager }

// playgroundKeyID is the context key of the ID of the key to use.
type playgroundKeyID struct{}

// Lookup returns the key whose ID is in ctx, or else the key for secret.
func (s playgroundKeyStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	id, ok := ctx.Value(playgroundKeyID{}).(string)
	if !ok {
		return s.KeyManager.Lookup(ctx, secret)
	}
	info, err := s.Key(ctx, id)
	if err != nil {
		return nil, err
	}
	if info.Status(time.Now()) != llmhttp.KeyActive {
		return nil, llmhttp.ErrKeyNotFound
	}
	return &info.Key, nil
}

// A playgroundMode is one of the forms of the playground. path is the endpoint that
// it calls.
type playgroundMode struct{ name, title, path string }

var playgroundModes = []playgroundMode{
	{"chat", "Chat", "/v1/chat/completions"},
	{"images", "Images", "/v1/images/generations"},
	{"embeddings", "Embeddings", "/v1/embeddings"},
}

// modeIndex returns the index of the mode with a name, or -1 if the name is unknown.
func modeIndex(name string) int {
	return slices.IndexFunc(playgroundModes, func(m playgroundMode) bool { return m.name == name })
}

// playgroundData is the data of playground.html.
type playgroundData struct {
	Mode    string
	Modes   []link // to the page in each mode
	Keys    []llmhttp.KeyInfo
	KeyID   string
	BaseURL string // of the API, in examples
}

// A playground serves the page of the playground and passes its requests to the API.
type playground struct {
	keys   llmhttp.KeyManager
	api    http.Handler // nil if there is no playground
	apiURL string       // Options.APIURL
}

func (p *playground) serve(q *request) error {
	if p.api == nil {
		return errNotFound
	}
	query := q.r.URL.Query()
	mode := playgroundModes[max(modeIndex(query.Get("mode")), 0)]
	data := &playgroundData{Mode: mode.name, KeyID: query.Get("key"), BaseURL: p.baseURL(q.r)}
	for _, m := range playgroundModes {
		v := url.Values{"mode": {m.name}}
		if data.KeyID != "" {
			v.Set("key", data.KeyID)
		}
		data.Modes = append(data.Modes, link{"?" + v.Encode(), m.title, m == mode})
	}
	var err error
	if data.Keys, err = p.usableKeys(q, data.KeyID); err != nil {
		return err
	}
	return q.render("playground.html", "Playground", data)
}

// usableKeys returns the newest keys that the user may use, and before them the key
// with the given ID if that is an older one.
func (p *playground) usableKeys(q *request, id string) ([]llmhttp.KeyInfo, error) {
	query := llmhttp.KeyQuery{Status: llmhttp.KeyActive, Newest: true, Limit: keysPerPage}
	if !q.user.Admin {
		query.Account = q.user.Account
	}
	keys, err := p.keys.ListKeys(q.r.Context(), query)
	if err != nil {
		return nil, err
	}
	if id != "" && !slices.ContainsFunc(keys, func(k llmhttp.KeyInfo) bool { return k.ID == id }) {
		info, err := p.keys.Key(q.r.Context(), id)
		if err == nil && q.user.sees(&info) && info.Status(time.Now()) == llmhttp.KeyActive {
			keys = append([]llmhttp.KeyInfo{info}, keys...)
		} else if err != nil && !errors.Is(err, llmhttp.ErrKeyNotFound) {
			return nil, err
		}
	}
	return slices.DeleteFunc(keys, func(k llmhttp.KeyInfo) bool { return !q.user.mayUse(&k) }), nil
}

// baseURL returns the address of the API in examples.
func (p *playground) baseURL(r *http.Request) string {
	if p.apiURL != "" {
		return strings.TrimSuffix(p.apiURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + "/v1"
}

// callAPI passes a request of the playground to the API, on behalf of the key
// in the query. Other sites cannot send such a request: browsers send JSON to
// another site only after a preflight, which the console does not permit.
func (p *playground) callAPI(q *request) error {
	if p.api == nil {
		return errNotFound
	}
	path := "/v1/models"
	if q.r.Method == http.MethodPost {
		i := modeIndex(q.r.PathValue("mode"))
		if i < 0 {
			return errNotFound
		}
		path = playgroundModes[i].path
	}
	info, err := q.findUsableKey(p.keys, q.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	p.api.ServeHTTP(q.w, q.apiRequest(path, info.ID))
	return nil
}

// apiRequest returns a request for the API with the body of q. It has only the
// headers that the API needs, and so no cookies.
func (q *request) apiRequest(path, keyID string) *http.Request {
	r := q.r.WithContext(context.WithValue(q.r.Context(), playgroundKeyID{}, keyID))
	r.URL = &url.URL{Path: path}
	r.RequestURI = path
	r.Header = make(http.Header)
	for _, name := range []string{"Accept", "Content-Type", "Content-Length"} {
		if v := q.r.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	return r
}
