package console

import (
	"errors"
	"net/http"

	"github.com/llmhttp/llmhttp"
)

// A User is a person who uses the console.
type User struct {
	// Name identifies the person in the audit log and on each page. It must
	// not be empty.
	Name string

	// Account is the account whose keys and usage the person sees. It is not
	// used if Admin is set.
	Account string

	// Admin lets the person see and change the keys and the usage of every
	// account, and see the overview and the audit log.
	Admin bool

	// Grant has the scopes, models, limits and latest expiry of the keys that
	// a person without Admin creates. Nil means that the person cannot create
	// keys. As limits are per key, each new key adds to what the account can
	// use.
	Grant *llmhttp.KeyParams

	// key is the key with which the person has signed in, or nil.
	key *llmhttp.Key

	// session is the cookie of a session of a SignIn. It is empty for other users.
	session string
}

// A UserFunc returns the person who sent a request. If nobody is signed in, or
// the person may not use the console, it returns an error that wraps
// [ErrNoUser]; any other error becomes a 500. It is called concurrently.
//
// The console does not let other sites send requests in the name of a person.
// It does so with [http.CrossOriginProtection], so a UserFunc may rely on
// cookies.
type UserFunc func(r *http.Request) (User, error)

// ErrNoUser is wrapped by the error of a [UserFunc] if nobody is signed in.
var ErrNoUser = errors.New("console: nobody is signed in")

// sees reports whether u may know that the key exists.
func (u *User) sees(k *llmhttp.KeyInfo) bool { return u.Admin || k.Account == u.Account }

// mayUse reports whether u may obtain a secret of a key that u sees, call the
// API with it, or revoke it. People who have signed in with a key may do so only
// for keys that allow no more than theirs, so that a restricted key does not open
// the others of its account.
func (u *User) mayUse(k *llmhttp.KeyInfo) bool { return u.key == nil || isWithin(&k.Key, u.key) }

func (u *User) mayCreate() bool { return u.Admin || u.Grant != nil }

// isWithin reports whether all scopes and models of k are among those of limit.
func isWithin(k, limit *llmhttp.Key) bool {
	if limit.Scopes != nil && k.Scopes == nil || limit.Models != nil && k.Models == nil {
		return false
	}
	for _, scope := range k.Scopes {
		if !limit.AllowsEndpoint(scope) {
			return false
		}
	}
	for _, model := range k.Models { // a pattern of k is within limit if it matches as a text
		if !limit.AllowsModel(model) {
			return false
		}
	}
	return true
}
