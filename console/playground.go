// The page of the playground, and the requests that it passes to the API.

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
	"github.com/llmhttp/llmhttp/manage"
)

// NewKeyStore returns the KeyStore for the Handler of the API. It finds keys by their secrets, as
// the KeyManager does. Requests of the console's playground have no secret: the console calls the
// Handler in the same process, with the ID of the key in the context, which requests from outside
// cannot set. So the browser needs no secret, and limits, models and usage are those of the key and
// its account. Only the list of models, which the page of the playground reads by itself, takes
// nothing from the limits. NewKeyStore panics if keys is nil.
func NewKeyStore(keys manage.KeyManager) llmhttp.KeyStore {
	if isNil(keys) {
		panic("console: nil KeyManager")
	}
	return playgroundKeyStore{keys}
}

type playgroundKeyStore struct{ manage.KeyManager }

// A playgroundCall is the value of the context of a request of the playground.
type playgroundCall struct {
	keyID     string
	unlimited bool // whether the limits of the key do not hold
}

// playgroundCallKey is the key of a playgroundCall in a context.
type playgroundCallKey struct{}

// Lookup returns the key for the playgroundCall in ctx, or else the key for secret.
func (s playgroundKeyStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	call, ok := ctx.Value(playgroundCallKey{}).(playgroundCall)
	if !ok {
		return s.KeyManager.Lookup(ctx, secret)
	}
	info, err := s.Key(ctx, call.keyID)
	if err != nil {
		return nil, err
	}
	if info.Status(time.Now()) != manage.KeyActive {
		return nil, llmhttp.ErrKeyNotFound
	}
	account, err := findAccount(ctx, accountsOf(s.KeyManager), info.Account)
	if err != nil {
		return nil, err
	}
	if account != nil {
		if account.Suspended {
			return nil, llmhttp.ErrKeyNotFound
		}
		account.ApplyTo(&info.Key)
	}
	if call.unlimited {
		info.Limits, info.PerUser, info.Subjects = llmhttp.Limits{}, llmhttp.Limits{}, nil
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
	Keys    []manage.KeyInfo
	KeyID   string
	Search  string
	More    bool   // whether there are further keys, or can be
	BaseURL string // of the API, in examples
}

// A playground serves the page of the playground and passes its requests to the API.
type playground struct {
	keys   manage.KeyManager
	api    http.Handler // nil if there is no playground
	prefix string       // Options.APIPrefix
	apiURL string       // Options.APIURL

	remoteAddr func(*http.Request) string // see Options.remoteAddr
}

func (p *playground) serve(q *request) error {
	if p.api == nil {
		return errNotFound
	}
	query := q.r.URL.Query()
	mode := playgroundModes[max(modeIndex(query.Get("mode")), 0)]
	data := &playgroundData{
		Mode: mode.name, KeyID: query.Get("key"), Search: strings.TrimSpace(query.Get("search")), BaseURL: p.baseURL(q.r),
	}
	for _, m := range playgroundModes {
		v := url.Values{"mode": {m.name}}
		if data.KeyID != "" {
			v.Set("key", data.KeyID)
		}
		if data.Search != "" {
			v.Set("search", data.Search)
		}
		data.Modes = append(data.Modes, link{"?" + v.Encode(), m.title, m == mode})
	}
	var err error
	if data.Keys, data.More, err = p.keysToCall(q, data.KeyID, data.Search); err != nil {
		return err
	}
	return q.render("playground.html", "Playground", data)
}

// maxScannedKeys is how many of the newest keys of an account are searched for those that
// a person who has signed in with a key may use.
const maxScannedKeys = 1000

// keysToCall returns at most itemsPerPage keys that the user may use: the newest of those
// that match search. Without a search, the key with the given ID and the key with which
// the user has signed in come first. It reports whether there may be more keys.
func (p *playground) keysToCall(q *request, id, search string) (keys []manage.KeyInfo, more bool, err error) {
	query := manage.KeyQuery{Status: manage.KeyActive, Search: search, Newest: true, Limit: itemsPerPage + 1}
	if !q.user.Admin {
		query.Account = q.user.Account
	}
	if q.user.key != nil {
		query.Limit = maxScannedKeys
	}
	found, err := p.keys.ListKeys(q.r.Context(), query)
	if err != nil {
		return nil, false, err
	}
	more = len(found) == query.Limit
	if search == "" {
		first, err := p.firstKeys(q, id)
		if err != nil {
			return nil, false, err
		}
		found = append(first, found...)
	}
	for i := range found {
		k := &found[i]
		if !q.user.mayCall(k) || slices.ContainsFunc(keys, func(added manage.KeyInfo) bool { return added.ID == k.ID }) {
			continue
		}
		if len(keys) == itemsPerPage {
			return keys, true, nil
		}
		keys = append(keys, *k)
	}
	return keys, more, nil
}

// firstKeys returns the key with the given ID and the key with which the user has signed
// in, if they are active and the user sees them.
func (p *playground) firstKeys(q *request, id string) (keys []manage.KeyInfo, err error) {
	ids := []string{id}
	if q.user.key != nil {
		ids = append(ids, q.user.key.ID)
	}
	for _, id := range ids {
		info, err := q.findKey(p.keys, id)
		if errors.Is(err, errNoKey) || errors.Is(err, llmhttp.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Status(time.Now()) == manage.KeyActive {
			keys = append(keys, info)
		}
	}
	return keys, nil
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
	return scheme + "://" + r.Host + p.prefix + "/v1"
}

// callAPI passes a request of the playground to the API, on behalf of the key in the query. Other
// sites cannot send such a request: browsers send JSON to another site only after a preflight,
// which the console does not permit.
func (p *playground) callAPI(q *request) error {
	if p.api == nil {
		return errNotFound
	}
	path, call := "/v1/models", playgroundCall{unlimited: true}
	if q.r.Method == http.MethodPost {
		i := modeIndex(q.r.PathValue("mode"))
		if i < 0 {
			return errNotFound
		}
		path, call.unlimited = playgroundModes[i].path, false
	}
	info, err := q.findKeyToCall(p.keys, q.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	call.keyID = info.ID
	defer endStream(q.w)
	p.api.ServeHTTP(q.w, p.apiRequest(q.r, p.prefix+path, call))
	return nil
}

// endStream is a deferred function. It ends an event stream that the API has cut, instead
// of the connection. Browsers discard what has arrived when a connection is cut, but the
// script must see the error at the end of the stream. Because a complete stream ends with
// [DONE], the script does not take the cut one for complete.
func endStream(w http.ResponseWriter) {
	cause := recover()
	isStream := strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
	if cause != nil && (cause != http.ErrAbortHandler || !isStream) {
		panic(cause)
	}
}

// apiRequest returns a request for the API with the body of page, a request of the console. It has
// only the headers that the API needs, and so no cookies. Its host is one that every API
// accepts without a secret: the console has checked that the request is not from another site.
func (p *playground) apiRequest(page *http.Request, path string, call playgroundCall) *http.Request {
	r := page.WithContext(context.WithValue(page.Context(), playgroundCallKey{}, call))
	r.URL = &url.URL{Path: path}
	r.RequestURI = path
	r.Host = "localhost"
	r.RemoteAddr = p.remoteAddr(page) // the header that tells is left out below
	r.Header = make(http.Header)
	for _, name := range []string{"Accept", "Content-Type", "Content-Length"} {
		if v := page.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	return r
}
