package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

func TestNew_Errors(t *testing.T) {
	user := func(*http.Request) (console.User, error) { return console.User{}, console.ErrNoUser }
	keys := memory.NewKeyStore()
	for name, test := range map[string]struct {
		keys manage.KeyManager
		opts *console.Options
		want string
	}{
		"no keys":               {nil, &console.Options{User: user}, "nil KeyManager"},
		"a nil store of keys":   {(*memory.KeyStore)(nil), &console.Options{User: user}, "nil KeyManager"},
		"a nil store of usage":  {keys, &console.Options{User: user, Usage: (*memory.UsageStore)(nil)}, "console: Options.Usage holds a nil *memory.UsageStore"},
		"a nil API":             {keys, &console.Options{User: user, API: (*llmhttp.Handler)(nil)}, "console: Options.API holds a nil *llmhttp.Handler"},
		"no options":            {keys, nil, "either User or SignIn"},
		"User and SignIn":       {keys, &console.Options{User: user, SignIn: &console.SignIn{Keys: true}}, "either User or SignIn"},
		"relative path":         {keys, &console.Options{User: user, Path: "console/"}, "Options.Path"},
		"path without end":      {keys, &console.Options{User: user, Path: "/console"}, "Options.Path"},
		"path with braces":      {keys, &console.Options{User: user, Path: "/{x}/"}, "Options.Path"},
		"prefix without slash":  {keys, &console.Options{User: user, APIPrefix: "llm"}, "Options.APIPrefix"},
		"prefix with an end":    {keys, &console.Options{User: user, APIPrefix: "/llm/"}, "Options.APIPrefix"},
		"URL without scheme":    {keys, &console.Options{User: user, APIURL: "llm.example.com/v1"}, "Options.APIURL"},
		"login without User":    {keys, &console.Options{SignIn: &console.SignIn{Keys: true}, LoginURL: "/login"}, "Options.LoginURL needs Options.User"},
		"zero proxy":            {keys, &console.Options{User: user, TrustedProxies: make([]netip.Prefix, 1)}, "Options.TrustedProxies[0]"},
		"store without reports": {keys, &console.Options{User: user, Usage: plainStore{}}, "console: Options.Usage: manage: a console_test.plainStore cannot report usage"},
		"buffer of such a one":  {keys, &console.Options{User: user, Usage: usagebuffer.New(plainStore{}, nil)}, "console: Options.Usage: the store of the *usagebuffer.Buffer: manage: a console_test.plainStore"},
		"nobody can sign in":    {keys, &console.Options{SignIn: &console.SignIn{}}, "nobody can sign in"},
		"not a password hash":   {keys, &console.Options{SignIn: &console.SignIn{Admins: map[string]string{"ada": "x"}}}, "ada"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := console.New(test.keys, test.opts)
			assert.Nil(t, c)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestOptions_LoginURL(t *testing.T) {
	user := func(*http.Request) (console.User, error) { return console.User{}, console.ErrNoUser }
	for loginURL, valid := range map[string]bool{
		"": true, "/": true, "/login": true, "/login?next=%2Fconsole%2F": true, "https://sso.example.com/login?app=1": true, "http://[::1]:8080": true,
		"login": false, "//evil.example.com": false, `/\evil.example.com`: false, "javascript:alert(1)": false, "https://": false, "https:login": false,
		"sso.example.com/login": false, "/lo\ngin": false, "data:text/html,x": false, "/%zz": false,
	} {
		_, err := console.New(memory.NewKeyStore(), &console.Options{User: user, LoginURL: loginURL})
		if valid {
			assert.NoError(t, err, loginURL)
		} else {
			assert.ErrorContains(t, err, "console: Options.LoginURL", loginURL)
		}
	}
}

// Only people who are not signed in see the link to the host's login.
func TestLoginURL(t *testing.T) {
	const link = `<a href="/login?a=1&amp;b=%22">Sign in</a>`
	for name, test := range map[string]struct {
		loginURL string
		user     console.User
		err      error
		status   int
		want     bool
	}{
		"not signed in": {"/login?a=1&b=%22", console.User{}, fmt.Errorf("no cookie: %w", console.ErrNoUser), http.StatusForbidden, true},
		"without a URL": {"", console.User{}, console.ErrNoUser, http.StatusForbidden, false},
		"no account":    {"/login?a=1&b=%22", console.User{Name: "grace"}, nil, http.StatusForbidden, false},
		"an error":      {"/login?a=1&b=%22", console.User{}, errors.New("down"), http.StatusInternalServerError, false},
		"an owner":      {"/login?a=1&b=%22", console.User{Name: "grace", Account: "acme"}, nil, http.StatusOK, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, func(_ *host, o *console.Options) {
				o.SignIn, o.LoginURL = nil, test.loginURL
				o.User = func(*http.Request) (console.User, error) { return test.user, test.err }
			})
			r := h.newVisitor(t).get("keys")
			assert.Equal(t, test.status, r.status)
			assert.Equal(t, test.want, strings.Contains(r.body, link), r.body)
		})
	}
}

func TestNewKeyStore_Panics(t *testing.T) {
	for _, keys := range []manage.KeyManager{nil, (*memory.KeyStore)(nil)} {
		assert.PanicsWithValue(t, "console: nil KeyManager", func() { console.NewKeyStore(keys) })
	}
}

// A plainStore is a UsageStore that cannot report.
type plainStore struct{ llmhttp.UsageStore }

// The console shows usage that waits in a Buffer.
func TestUsage_BehindABuffer(t *testing.T) {
	buffer := usagebuffer.New(memory.NewUsageStore(), &usagebuffer.Options{BatchSize: 1000, Delay: time.Hour})
	h := newHostWithStores(t, memory.NewKeyStore(), buffer, nil)
	require.NoError(t, buffer.Record(t.Context(), record("1", today(), "acme", "key_1", "waiting-model", 7)))
	v := h.newAdmin(t)
	assert.Contains(t, v.get("keys").body, "/console/usage")
	assert.Contains(t, v.get("usage?by=model").body, "waiting-model")
}

// What a UserFunc returns decides who sees the console and what its errors reveal.
func TestHandler_UserFunc(t *testing.T) {
	for name, test := range map[string]struct {
		user   console.User
		err    error
		status int
	}{
		"a user":           {console.User{Name: "grace", Account: "acme"}, nil, http.StatusOK},
		"no account":       {console.User{Name: "grace"}, nil, http.StatusForbidden},
		"nobody":           {console.User{}, console.ErrNoUser, http.StatusForbidden},
		"an error":         {console.User{Name: "grace", Admin: true}, errors.New("marker"), http.StatusInternalServerError},
		"without a name":   {console.User{Admin: true}, nil, http.StatusInternalServerError},
		"nobody with name": {console.User{Name: "grace", Admin: true}, console.ErrNoUser, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, func(_ *host, o *console.Options) {
				o.SignIn = nil
				o.User = func(*http.Request) (console.User, error) { return test.user, test.err }
			})
			key, _ := h.mustCreate(t, manage.KeyParams{Account: "secret account"})
			v := h.newVisitor(t)
			for _, path := range pagesOf(key.ID) {
				r := v.get(path)
				assert.NotContains(t, r.body, "secret account", path)
				assert.NotContains(t, r.body, "marker", path)
				if test.status != http.StatusOK {
					assert.Equal(t, test.status, r.status, path)
				}
			}
			require.Equal(t, test.status, v.get("keys").status)
			assert.Equal(t, http.StatusNotFound, v.get("sign-in").status, "the host has its own sign-in")
		})
	}
}
