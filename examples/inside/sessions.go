package main

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	cookieName    = "session"
	sessionPrefix = "session." // of the secret that stands for a session

	// placeholder is what the pages of the service give to an SDK, because those for browsers
	// insist on a key: new OpenAI({baseURL: location.origin + "/v1", apiKey: "session",
	// dangerouslyAllowBrowser: true})
	placeholder = "session"
)

// sessions are those of people who are signed in to the service.
type sessions struct {
	mu    sync.Mutex // guards users
	users map[string]string
}

func newSessions() *sessions { return &sessions{users: make(map[string]string)} }

// signIn begins a session. A real service asks for a password.
func (s *sessions) signIn(w http.ResponseWriter, r *http.Request) {
	id := llmhttp.NewSecret("")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[id] = r.PostFormValue("user")
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// middleware turns the cookie of a session into a key, for requests that have no key of their own.
// A browser sends cookies with requests of other sites too, so these are refused.
func (s *sessions) middleware(api *llmhttp.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(cookieName)
		if err != nil || hasKey(r) {
			api.ServeHTTP(w, r)
			return
		}
		if err := protection.Check(r); err != nil {
			api.WriteError(w, r, llm.Errorf(http.StatusForbidden, "", "Requests of other sites are not allowed."))
			return
		}
		r = r.Clone(r.Context())
		r.Header.Del("X-Api-Key")
		r.Header.Set("Authorization", "Bearer "+sessionPrefix+cookie.Value)
		api.ServeHTTP(w, r)
	})
}

// hasKey reports whether r has a key other than the placeholder.
func hasKey(r *http.Request) bool {
	for _, key := range []string{llmhttp.BearerSecret(r), r.Header.Get("X-Api-Key")} {
		if key != "" && key != placeholder {
			return true
		}
	}
	return false
}

// keyStore returns a KeyStore that has a key for each session, and those of keys.
func (s *sessions) keyStore(keys llmhttp.KeyStore) llmhttp.KeyStore {
	return llmhttp.KeyStoreFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		id, ok := strings.CutPrefix(secret, sessionPrefix)
		if !ok {
			return keys.Lookup(ctx, secret)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		user, ok := s.users[id]
		if !ok {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "web-" + user, Account: user, Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(60)}}, nil
	})
}
