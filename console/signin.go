// SignIn: options and passwords.

package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/console/internal/session"
)

// SignIn configures the console's own sign-in, for hosts that have none.
//
// Each process limits the attempts to sign in that it sees: for each address, and for
// each name, whether that exists or not. The following keeps attempts of others from
// locking administrators out. A browser in which the person has signed in with the present
// password in the last 30 days has a limit of its own in place of both; a cookie tells, at
// every process with the same SessionSecret. The limit of a name does not hold for
// addresses from which the person has used the console in the last 30 days, as far as the
// process knows, nor for the first three attempts a day of each other network: an IPv4 address,
// or a prefix of 48 bits of IPv6. And there is no limit for a right password of
// passwordhash.Generate, wherever it is entered: use one where strangers share the address of an
// administrator, for example behind a proxy that is not in Options.TrustedProxies. Those strangers, and
// strangers with many thousands of addresses, can keep an administrator with another password from
// signing in for the first time. While 10 attempts a minute come from one address, people with API keys
// cannot sign in from it either.
type SignIn struct {
	// Admins maps the names of administrators to the hashes of their passwords, which
	// passwordhash.New or passwordhash.Generate returns. "llmhttpctl hash-password" prints them.
	Admins map[string]string

	// Keys lets people sign in with an API key. They see the keys, the usage, the limits
	// and the credit of its account. They can rename, rotate, revoke and call the API with this key,
	// and with those whose scopes, models, limits and expiry are within those of this
	// key. They cannot raise limits or create keys.
	//
	// The session ends when the secret that they have entered stops working, for example because
	// the account is suspended, and also if the key has got another one. While a rotation lets that
	// secret work for some time, they can call the API with its key, but not change the key, so
	// that nothing they make works longer than the secret.
	Keys bool

	// Duration is how long a session lasts, however much it is used. Zero means
	// 12 hours; negative means no limit.
	Duration time.Duration

	// SessionSecret encrypts sessions, which are in cookies, and the cookies by which
	// browsers of administrators are known. Processes that have the same SessionSecret
	// accept each other's cookies. It must be random, have at least 32 bytes, and be
	// kept as safe as a password. If it is empty, each process has its own: sessions
	// end with the process, which also forgets the browsers.
	//
	// A session ends when the person signs out, after Duration, when the password of
	// the administrator changes, or when the secret of the API key stops working.
	// Signing out removes the session's cookie from the browser. Only the process that
	// serves the sign-out remembers that the session has ended: others would accept a
	// copy of the cookie.
	SessionSecret []byte

	// PlainHTTP lets browsers send session cookies without TLS, also where networks can read them. If it is
	// false, a cookie lacks Secure only in the reply to a request that a browser on this machine has sent to
	// an address of the loopback interface, and not through a proxy.
	PlainHTTP bool

	// ClientAddr returns the address of a client, by which attempts to sign in
	// are limited and which is in the audit log. If nil, Options.TrustedProxies says
	// how the address is found. The function may read a header only if a proxy
	// always sets it.
	ClientAddr func(r *http.Request) string
}

// personUser returns a [UserFunc] for people who have signed in at s.
func personUser(s *session.SignIn) UserFunc {
	return func(r *http.Request) (User, error) {
		p, err := s.Person(r)
		if errors.Is(err, session.ErrNobody) {
			err = ErrNoUser
		}
		return newUser(&p), err
	}
}

func newUser(p *session.Person) User {
	u := User{Name: p.Admin, Admin: p.Admin != "", key: p.Key, secret: p.Secret, session: p.Cookie}
	if p.Key != nil {
		u.Name, u.Account = p.Key.ID, p.Key.Account
	}
	return u
}
