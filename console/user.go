// User and UserFunc.

package console

import (
	"errors"
	"net/http"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A User is a person who uses the console.
type User struct {
	// Name identifies the person in the audit log and on each page. It must not be empty.
	Name string

	// Account is the account that the person sees, with its keys and usage. It is not used if Admin
	// is set. A person with neither sees nothing: each request gets a 403.
	Account string

	// Admin lets the person see and change every account, its keys and its usage,
	// and see the overview and the audit log.
	Admin bool

	// Grant has the scopes, models, limits and latest expiry of the keys that a person without
	// Admin creates. Nil means that the person cannot create keys. As limits are per key, each new
	// key adds to what the account can use.
	Grant *manage.KeyParams

	// key is the key with which the person has signed in, or nil. It expires with
	// the secret that the person has entered.
	key *llmhttp.Key

	// secret is the HashSecret of the secret with which the person has signed in.
	secret string

	// session is the cookie of a session of a SignIn. It is empty for other users.
	session string
}

// A UserFunc returns the person who sent a request. If nobody is signed in, or
// the person may not use the console, it returns an error that wraps
// [ErrNoUser]; any other error becomes a 500. It is called concurrently.
//
// The console does not let other sites send requests in the name of a person. It does so with
// [http.CrossOriginProtection], so a UserFunc may rely on cookies.
type UserFunc func(r *http.Request) (User, error)

// ErrNoUser is wrapped by the error of a [UserFunc] if nobody is signed in.
var ErrNoUser = errors.New("console: nobody is signed in")
