package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/passwordhash"
	"github.com/llmhttp/llmhttp/manage"
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
// [GeneratePassword], wherever it is entered: use one where strangers share the address of an
// administrator, for example behind a proxy that is not in Options.TrustedProxies.
type SignIn struct {
	// Admins maps the names of administrators to the hashes of their passwords, which
	// [HashPassword] or [GeneratePassword] returns.
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

// GeneratePassword returns a random password and its hash for [SignIn]. As nobody can guess
// it, the limits of attempts do not hold for it, so that attempts of others never lock its
// administrator out. "llmhttpctl hash-password --generate" does the same.
func GeneratePassword() (password, hash string) { return passwordhash.Generate() }

// signIn checks credentials and keeps sessions.
type signIn struct {
	config   SignIn
	keys     manage.KeyManager
	admins   map[string]*passwordhash.Hash
	attempts llmhttp.Limiter

	// The hashes for unknown names, so that checking them takes as long. decoy is that of a
	// password that a person chose, or nil if no administrator has one.
	decoy, generatedDecoy *passwordhash.Hash

	hashing  chan struct{} // a semaphore: bounds how many passwords of strangers are hashed at a time
	sessions *sessions

	known        knownAddrs
	browsers     *sessions     // the cookies of known browsers
	knownHashing chan struct{} // like hashing, for known people, who do not wait for strangers
	newHashing   chan struct{} // like hashing, for the first attempts of networks, which do not wait for further ones
}

// The limits of sign-in attempts. Hashing a password takes about 100 ms of CPU time.
var (
	attemptsPerAddress = llmhttp.Rate{N: 10, Per: time.Minute} // and per known browser
	attemptsPerName    = llmhttp.Rate{N: 20, Per: time.Minute}

	// attemptsPerNetwork are those that the limit of a name does not bound. Somebody with 10,000 networks gets as
	// many a day by them as by the limit of the name.
	attemptsPerNetwork = llmhttp.Rate{N: 3, Per: day}
)

// refusalsPerAddress limits the entries in the audit log about refused attempts.
var refusalsPerAddress = llmhttp.Rate{N: 1, Per: time.Minute}

const (
	maxHashing             = 2
	defaultSessionDuration = 12 * time.Hour
	forever                = 100 * 365 * 24 * time.Hour // can be added to any time
	minSessionSecret       = 32                         // bytes
)

func newSignIn(config SignIn, keys manage.KeyManager) (*signIn, error) {
	s := &signIn{
		config:   config,
		keys:     keys,
		admins:   make(map[string]*passwordhash.Hash),
		attempts: llmhttp.NewLimiter(),
		hashing:  make(chan struct{}, maxHashing),

		knownHashing: make(chan struct{}, maxHashing),
		newHashing:   make(chan struct{}, maxHashing),
	}
	_, generated := passwordhash.Generate()
	var err error
	if s.generatedDecoy, err = passwordhash.Parse(generated); err != nil {
		return nil, err
	}
	for name, text := range config.Admins {
		hash, err := passwordhash.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("console: SignIn.Admins[%q]: %w", name, err)
		}
		if name == "" {
			return nil, errors.New("console: SignIn.Admins: a name is empty")
		}
		if s.admins[name] = hash; !hash.Generated() {
			s.decoy = hash
		}
	}
	if len(s.admins) == 0 && !config.Keys {
		return nil, errors.New("console: SignIn: nobody can sign in without Admins or Keys")
	}
	s.config.Duration = min(option.Bound(config.Duration, defaultSessionDuration), forever)
	if n := len(config.SessionSecret); n > 0 && n < minSessionSecret {
		return nil, fmt.Errorf("console: SignIn.SessionSecret has %d bytes; it must have at least %d", n, minSessionSecret)
	}
	if s.sessions, err = newSessions(config.SessionSecret, "session"); err != nil {
		return nil, err
	}
	s.browsers, err = newSessions(config.SessionSecret, "browser")
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
		u, err := s.keyUser(r.Context(), sess.Secret)
		u.session = cookie.Value
		return u, err
	}
	if !s.hasPassword(sess) {
		return User{}, ErrNoUser
	}
	s.known.add(sess.Admin, s.config.ClientAddr(r), time.Now())
	return User{Name: sess.Admin, Admin: true, session: cookie.Value}, nil
}

// keyUser returns the person who has the secret with the given hash. If the secret, its
// key or its account does not work, or if keys may not sign in, the error is ErrNoUser.
func (s *signIn) keyUser(ctx context.Context, hash string) (User, error) {
	if !s.config.Keys {
		return User{}, ErrNoUser
	}
	info, ends, err := s.keys.KeyBySecret(ctx, hash)
	if errors.Is(err, llmhttp.ErrKeyNotFound) {
		return User{}, ErrNoUser
	}
	if err != nil {
		return User{}, err
	}
	now := time.Now()
	if info.Status(now) != manage.KeyActive || !ends.IsZero() && !now.Before(ends) {
		return User{}, ErrNoUser
	}
	account, err := findAccount(ctx, accountsOf(s.keys), info.Account)
	switch {
	case err != nil:
		return User{}, err
	case account != nil && account.Suspended:
		return User{}, ErrNoUser
	}
	if !expiryWithin(info.Expires, ends) {
		info.Expires = ends
	}
	return User{Name: info.ID, Account: info.Account, key: &info.Key, secret: hash}, nil
}

// passwordID returns a text that identifies the hash of an administrator's password.
func (s *signIn) passwordID(name string) string {
	sum := sha256.Sum256([]byte(s.config.Admins[name]))
	return hex.EncodeToString(sum[:8])
}

// hasPassword reports whether the administrator of a session exists and has the same
// password as when it began.
func (s *signIn) hasPassword(sess session) bool {
	return s.admins[sess.Admin] != nil && sess.Password == s.passwordID(sess.Admin)
}

// newSession returns the value of the session cookie of a person who has signed in. The
// session does not last longer than the secret of a key.
func (s *signIn) newSession(u *User) string {
	ends := time.Now().Add(s.config.Duration)
	if u.Admin {
		return s.sessions.encode(session{Ends: ends.Unix(), Admin: u.Name, Password: s.passwordID(u.Name)})
	}
	if !expiryWithin(ends, u.key.Expires) {
		ends = u.key.Expires
	}
	return s.sessions.encode(session{Ends: ends.Unix(), Secret: u.secret})
}

// The reasons to refuse a sign-in, which the sign-in page shows.
var (
	errWrongPassword   = &pageError{http.StatusForbidden, "The name or the password is wrong."}
	errWrongKey        = &pageError{http.StatusForbidden, "There is no such key, or it does not work any more."}
	errTooManyAttempts = &pageError{http.StatusTooManyRequests, "There were too many attempts. Please wait a minute."}
)

// checkPassword returns the administrator with the given name and password. One that is
// generated takes no attempt.
func (s *signIn) checkPassword(r *http.Request, name, password string) (User, error) {
	addr := s.config.ClientAddr(r)
	hash, exists := s.admins[name]
	generated := s.generatedDecoy
	if exists && hash.Generated() {
		generated, hash, exists = hash, nil, false
	}
	matches := generated.Matches(password)
	if !matches {
		slots, err := s.takePasswordAttempt(r, name, addr)
		if err != nil {
			return User{}, err
		}
		if !exists {
			hash = s.decoy
		}
		if hash == nil { // no administrator has chosen a password
			return User{}, errWrongPassword
		}
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return User{}, r.Context().Err()
		}
		matches = hash.Matches(password) && exists
		<-slots
	}
	if !matches {
		return User{}, errWrongPassword
	}
	s.known.add(name, addr, time.Now())
	return User{Name: name, Admin: true}, nil
}

// takePasswordAttempt takes an attempt for a name from an address, and returns the semaphore
// for hashing the password. Each known browser has a limit of its own, so that its cookie does
// not help to guess a password.
func (s *signIn) takePasswordAttempt(r *http.Request, name, addr string) (slots chan struct{}, err error) {
	if browser := s.knownBrowser(r, name); browser != "" {
		return s.knownHashing, s.takeAttempt(r.Context(), "browser "+browser, attemptsPerAddress)
	}
	if err := s.takeAttempt(r.Context(), "address "+addr, attemptsPerAddress); err != nil {
		return nil, err
	}
	if s.known.has(name, addr, time.Now()) {
		return s.knownHashing, nil
	}
	err = s.takeAttempt(r.Context(), "network "+networkOf(addr), attemptsPerNetwork)
	if !errors.Is(err, errTooManyAttempts) {
		return s.newHashing, err
	}
	// A name of any length has a short hash.
	return s.hashing, s.takeAttempt(r.Context(), "name "+llmhttp.HashSecret(name), attemptsPerName)
}

// checkKey returns the person who signs in with an API key.
func (s *signIn) checkKey(r *http.Request, secret string) (User, error) {
	if !s.config.Keys {
		return User{}, errWrongKey
	}
	if err := s.takeAttempt(r.Context(), "address "+s.config.ClientAddr(r), attemptsPerAddress); err != nil {
		return User{}, err
	}
	if secret == "" || secret == llmhttp.Anonymous { // which a store can contain, but nobody can present
		return User{}, errWrongKey
	}
	user, err := s.keyUser(r.Context(), llmhttp.HashSecret(secret))
	if errors.Is(err, ErrNoUser) {
		err = errWrongKey
	}
	return user, err
}

// isFirstRefusal reports whether the client was not refused in the last minute because of
// too many attempts.
func (s *signIn) isFirstRefusal(r *http.Request) bool {
	return s.takeAttempt(r.Context(), "refused "+s.config.ClientAddr(r), refusalsPerAddress) == nil
}

// takeAttempt takes one of the attempts that rate gives to key. It returns
// errTooManyAttempts if there is none left.
func (s *signIn) takeAttempt(ctx context.Context, key string, rate llmhttp.Rate) error {
	levels, err := s.attempts.Take(
		ctx,
		llmhttp.Draw{Subject: llmhttp.SubjectID{Kind: "sign-in", ID: key}, Bucket: "attempts", Rate: rate, Amount: 1},
	)
	if err == nil && levels[0].RetryAfter > 0 {
		return errTooManyAttempts
	}
	return err
}

// sessionCookie is the name of the cookie that has the session.
const sessionCookie = "llmhttp_console"

// setSession stores a session in the browser. An empty value removes it.
func (s *signIn) setSession(w http.ResponseWriter, r *http.Request, path, value string) {
	cookie := &http.Cookie{Name: sessionCookie, Value: value, Path: path, MaxAge: int(min(s.config.Duration.Seconds(), math.MaxInt32))}
	if value == "" {
		cookie.MaxAge = -1
	}
	s.setCookie(w, r, cookie)
}

// setCookie sends a cookie that neither scripts nor other sites can use.
func (s *signIn) setCookie(w http.ResponseWriter, r *http.Request, cookie *http.Cookie) {
	cookie.HttpOnly, cookie.SameSite = true, http.SameSiteStrictMode
	cookie.Secure = r.TLS != nil || !s.config.PlainHTTP && !isLocal(r)
	http.SetCookie(w, cookie)
}
