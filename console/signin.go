package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/passwordhash"
)

// SignIn configures the console's own sign-in, for hosts that have none.
//
// Each process limits the attempts to sign in that it sees.
type SignIn struct {
	// Admins maps the names of administrators to the hashes of their
	// passwords, which [HashPassword] returns.
	Admins map[string]string

	// Keys lets people sign in with an API key. They see the keys and the usage
	// of its account. They can rename these keys, and rotate and revoke those
	// that allow no more than the key they have signed in with. They cannot raise
	// limits or create keys. The session ends when the key stops working.
	Keys bool

	// Duration is how long a session lasts, however much it is used. Zero or
	// negative means 12 hours.
	Duration time.Duration

	// SessionSecret encrypts sessions, which are in cookies. Processes that have
	// the same SessionSecret accept each other's sessions. It must be random, have
	// at least 32 bytes, and be kept as safe as a password. If it is empty, each
	// process has its own: sessions end with the process.
	//
	// A session ends when the person signs out, after Duration, when the password
	// of the administrator changes, or when the API key stops working. Signing out
	// removes the cookie from the browser. Only the process that serves the sign-out
	// remembers that the session has ended: others would accept a copy of the cookie.
	SessionSecret []byte

	// PlainHTTP lets browsers send session cookies without TLS to addresses
	// other than that of the same machine, where networks can read them.
	PlainHTTP bool

	// ClientAddr returns the address of a client, by which attempts to sign in
	// are limited and which is in the audit log. Nil means r.RemoteAddr. Behind
	// a proxy that is the address of the proxy, and all clients share one limit.
	// The function may read a header only if the proxy always sets it.
	ClientAddr func(r *http.Request) string
}

// HashPassword returns a hash of password for [SignIn]. It fails if the password
// has less than 8 or more than 1024 bytes. "llmhttpctl hash-password" does the
// same.
func HashPassword(password string) (string, error) {
	hash, err := passwordhash.New(password)
	if err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	return hash, nil
}

// signIn checks credentials and keeps sessions.
type signIn struct {
	config   SignIn
	keys     llmhttp.KeyManager
	admins   map[string]*passwordhash.Hash
	decoy    *passwordhash.Hash // the hash for unknown names, so that checking them takes as long; nil without Admins
	attempts llmhttp.Limiter
	hashing  chan struct{} // a semaphore: bounds how many passwords are hashed at a time
	sessions *sessions
}

// The limits of sign-in attempts. Hashing a password takes about 100 ms of CPU time.
var (
	attemptsPerAddress = llmhttp.Rate{N: 10, Per: time.Minute}
	attemptsPerName    = llmhttp.Rate{N: 20, Per: time.Minute}
)

const (
	maxHashing             = 2
	defaultSessionDuration = 12 * time.Hour
	minSessionSecret       = 32 // bytes
)

func newSignIn(config SignIn, keys llmhttp.KeyManager) (*signIn, error) {
	s := &signIn{
		config:   config,
		keys:     keys,
		admins:   make(map[string]*passwordhash.Hash),
		attempts: llmhttp.NewLimiter(),
		hashing:  make(chan struct{}, maxHashing),
	}
	for name, text := range config.Admins {
		hash, err := passwordhash.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("console: SignIn.Admins[%q]: %w", name, err)
		}
		if name == "" {
			return nil, errors.New("console: SignIn.Admins: a name is empty")
		}
		s.admins[name], s.decoy = hash, hash
	}
	if s.decoy == nil && !config.Keys {
		return nil, errors.New("console: SignIn: nobody can sign in without Admins or Keys")
	}
	s.config.Duration = cmp.Or(max(config.Duration, 0), defaultSessionDuration)
	if n := len(config.SessionSecret); n > 0 && n < minSessionSecret {
		return nil, fmt.Errorf("console: SignIn.SessionSecret has %d bytes; it must have at least %d", n, minSessionSecret)
	}
	var err error
	s.sessions, err = newSessions(config.SessionSecret)
	return s, err
}

// user returns the person to whom the session in the cookie belongs. It is a
// [UserFunc].
func (s *signIn) user(r *http.Request) (User, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return User{}, ErrNoUser
	}
	sess, ok := s.sessions.decode(cookie.Value, time.Now())
	if !ok {
		return User{}, ErrNoUser
	}
	if sess.Admin == "" {
		u, err := s.keyUser(r.Context(), sess.KeyID)
		u.session = cookie.Value
		return u, err
	}
	if s.admins[sess.Admin] == nil || sess.Password != s.passwordID(sess.Admin) {
		return User{}, ErrNoUser
	}
	return User{Name: sess.Admin, Admin: true, session: cookie.Value}, nil
}

// keyUser returns the person to whom a key belongs. If the key does not work, or if
// keys may not sign in, the error is ErrNoUser.
func (s *signIn) keyUser(ctx context.Context, keyID string) (User, error) {
	info, err := s.keys.Key(ctx, keyID)
	if errors.Is(err, llmhttp.ErrKeyNotFound) || err == nil && (!s.config.Keys || info.Status(time.Now()) != llmhttp.KeyActive) {
		return User{}, ErrNoUser
	}
	if err != nil {
		return User{}, err
	}
	return User{Name: info.ID, Account: info.Account, key: &info.Key}, nil
}

// passwordID returns a text that identifies the hash of an administrator's password.
func (s *signIn) passwordID(name string) string {
	sum := sha256.Sum256([]byte(s.config.Admins[name]))
	return hex.EncodeToString(sum[:8])
}

// newSession returns the value of the session cookie of a person who has signed in.
func (s *signIn) newSession(u *User) string {
	sess := session{Ends: time.Now().Add(s.config.Duration).Unix()}
	if u.Admin {
		sess.Admin, sess.Password = u.Name, s.passwordID(u.Name)
	} else {
		sess.KeyID = u.key.ID
	}
	return s.sessions.encode(sess)
}

// The reasons to refuse a sign-in, which the sign-in page shows.
var (
	errWrongPassword   = &pageError{http.StatusForbidden, "The name or the password is wrong."}
	errWrongKey        = &pageError{http.StatusForbidden, "There is no such key, or it does not work any more."}
	errTooManyAttempts = &pageError{http.StatusTooManyRequests, "There were too many attempts. Please wait a minute."}
)

// checkPassword returns the administrator with the given name and password.
func (s *signIn) checkPassword(r *http.Request, name, password string) (User, error) {
	if err := s.countAttempt(r, name); err != nil {
		return User{}, err
	}
	hash, known := s.admins[name]
	if !known {
		hash = s.decoy
	}
	if hash == nil { // there are no administrators
		return User{}, errWrongPassword
	}
	select {
	case s.hashing <- struct{}{}:
	case <-r.Context().Done():
		return User{}, r.Context().Err()
	}
	matches := hash.Matches(password)
	<-s.hashing
	if !known || !matches {
		return User{}, errWrongPassword
	}
	return User{Name: name, Admin: true}, nil
}

// checkKey returns the person who signs in with an API key.
func (s *signIn) checkKey(r *http.Request, secret string) (User, error) {
	if !s.config.Keys {
		return User{}, errWrongKey
	}
	if err := s.countAttempt(r, ""); err != nil {
		return User{}, err
	}
	if secret == "" || secret == llmhttp.Anonymous {
		return User{}, errWrongKey
	}
	key, err := s.keys.Lookup(r.Context(), secret)
	if errors.Is(err, llmhttp.ErrKeyNotFound) {
		return User{}, errWrongKey
	}
	if err != nil {
		return User{}, err
	}
	// Expires can be that of a secret from before a rotation, which the key does not have.
	if !key.Expires.IsZero() && !time.Now().Before(key.Expires) {
		return User{}, errWrongKey
	}
	user, err := s.keyUser(r.Context(), key.ID)
	if errors.Is(err, ErrNoUser) {
		err = errWrongKey
	}
	return user, err
}

// countAttempt counts an attempt to sign in. It returns errTooManyAttempts if the
// client or the administrator with that name has no attempt left.
func (s *signIn) countAttempt(r *http.Request, name string) error {
	err := s.takeAttempt(r.Context(), "address "+s.config.ClientAddr(r), attemptsPerAddress)
	if err == nil && s.admins[name] != nil {
		err = s.takeAttempt(r.Context(), "name "+name, attemptsPerName)
	}
	return err
}

// takeAttempt takes one of the attempts of key. It returns errTooManyAttempts if
// there is none left.
func (s *signIn) takeAttempt(ctx context.Context, key string, rate llmhttp.Rate) error {
	levels, err := s.attempts.Take(ctx, key, llmhttp.Draw{Bucket: "sign-in", Rate: rate, Cost: 1})
	if err == nil && levels[0].RetryAfter > 0 {
		return errTooManyAttempts
	}
	return err
}

// sessionCookie is the name of the cookie that has the session.
const sessionCookie = "llmhttp_console"

// setCookie stores a session in the browser. An empty value removes it.
func (s *signIn) setCookie(w http.ResponseWriter, r *http.Request, path, value string) {
	cookie := &http.Cookie{
		Name: sessionCookie, Value: value, Path: path, MaxAge: int(s.config.Duration.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || !s.config.PlainHTTP && !isLoopback(r.Host),
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}
