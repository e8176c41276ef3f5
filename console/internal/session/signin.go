// Checks passwords and keys, and bounds the attempts.

package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/clientaddr"
	"github.com/llmhttp/llmhttp/console/passwordhash"
	"github.com/llmhttp/llmhttp/manage"
)

// A Config has the fields of the console's SignIn, which documents them. ClientAddr is required.
type Config struct {
	Admins        map[string]string
	Keys          bool
	Duration      time.Duration
	SessionSecret []byte
	PlainHTTP     bool
	ClientAddr    func(r *http.Request) string
}

// A Person has signed in, as an administrator or with a key.
type Person struct {
	Admin  string       // the name of the administrator
	Key    *llmhttp.Key // expires with the secret that the person has entered
	Secret string       // the HashSecret of that
	Cookie string       // that of the session; empty before it begins
}

// ErrNobody says that nobody has signed in.
var ErrNobody = errors.New("console: nobody has signed in")

// HasPasswords reports whether there are administrators.
func (s *SignIn) HasPasswords() bool { return len(s.admins) > 0 }

// HasKeys reports whether people may sign in with a key.
func (s *SignIn) HasKeys() bool { return s.config.Keys }

// IsAdmin reports whether an administrator has that name.
func (s *SignIn) IsAdmin(name string) bool { return s.admins[name] != nil }

// ExpiryWithin reports whether t is not later than limit. The zero time means never.
func ExpiryWithin(t, limit time.Time) bool {
	return limit.IsZero() || !t.IsZero() && !t.After(limit)
}

// A SignIn checks credentials and keeps sessions.
type SignIn struct {
	config   Config
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
	AttemptsPerAddress = llmhttp.Rate{N: 10, Per: time.Minute} // and per known browser
	AttemptsPerName    = llmhttp.Rate{N: 20, Per: time.Minute}

	// AttemptsPerNetwork are those that the limit of a name does not bound. Somebody with 10,000 networks gets as
	// many a day by them as by the limit of the name.
	AttemptsPerNetwork = llmhttp.Rate{N: 3, Per: 24 * time.Hour}
)

// RefusalsPerAddress limits the entries in the audit log about refused attempts.
var RefusalsPerAddress = llmhttp.Rate{N: 1, Per: time.Minute}

const (
	maxHashing             = 2
	defaultSessionDuration = 12 * time.Hour
	forever                = 100 * 365 * 24 * time.Hour // can be added to any time
	minSessionSecret       = 32                         // bytes
)

// New returns a SignIn for administrators and for people who have one of keys. An error names the field of the
// console's SignIn.
func New(config Config, keys manage.KeyManager) (*SignIn, error) {
	s := &SignIn{
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
	s.config.Duration = min(cmp.Or(config.Duration, defaultSessionDuration), forever)
	if s.config.Duration < 0 {
		s.config.Duration = forever
	}
	if n := len(config.SessionSecret); n > 0 && n < minSessionSecret {
		return nil, fmt.Errorf("console: SignIn.SessionSecret has %d bytes; it must have at least %d", n, minSessionSecret)
	}
	if s.sessions, err = newSessions(config.SessionSecret, "session"); err != nil {
		return nil, err
	}
	s.browsers, err = newSessions(config.SessionSecret, "browser")
	return s, err
}

// Person returns the person to whom the session in the cookie belongs. The error is ErrNobody if there
// is none.
func (s *SignIn) Person(r *http.Request) (Person, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return Person{}, ErrNobody
	}
	sess, ok := s.sessions.decode(cookie.Value, time.Now())
	if !ok {
		return Person{}, ErrNobody
	}
	if sess.Admin == "" {
		p, err := s.keyPerson(r.Context(), sess.Secret)
		p.Cookie = cookie.Value
		return p, err
	}
	if !s.hasPassword(sess) {
		return Person{}, ErrNobody
	}
	s.known.add(sess.Admin, s.config.ClientAddr(r), time.Now())
	return Person{Admin: sess.Admin, Cookie: cookie.Value}, nil
}

// keyPerson returns the person who has the secret with the given hash. If the secret, its
// key or its account does not work, or if keys may not sign in, the error is ErrNobody.
func (s *SignIn) keyPerson(ctx context.Context, hash string) (Person, error) {
	if !s.config.Keys {
		return Person{}, ErrNobody
	}
	info, ends, err := s.keys.KeyBySecret(ctx, hash)
	if errors.Is(err, llmhttp.ErrKeyNotFound) {
		return Person{}, ErrNobody
	}
	if err != nil {
		return Person{}, err
	}
	now := time.Now()
	if info.Status(now) != manage.KeyActive || !ends.IsZero() && !now.Before(ends) {
		return Person{}, ErrNobody
	}
	if accounts, ok := s.keys.(manage.AccountManager); ok {
		account, err := accounts.Account(ctx, info.Account)
		switch {
		case errors.Is(err, manage.ErrAccountNotFound):
		case err != nil:
			return Person{}, err
		case account.Suspended:
			return Person{}, ErrNobody
		}
	}
	if !ExpiryWithin(info.Expires, ends) {
		info.Expires = ends
	}
	return Person{Key: &info.Key, Secret: hash}, nil
}

// passwordID returns a text that identifies the hash of an administrator's password.
func (s *SignIn) passwordID(name string) string {
	sum := sha256.Sum256([]byte(s.config.Admins[name]))
	return hex.EncodeToString(sum[:8])
}

// hasPassword reports whether the administrator of a session exists and has the same
// password as when it began.
func (s *SignIn) hasPassword(sess session) bool {
	return s.admins[sess.Admin] != nil && sess.Password == s.passwordID(sess.Admin)
}

// newSession returns the value of the session cookie of a person who has signed in. The
// session does not last longer than the secret of a key.
func (s *SignIn) newSession(p *Person) string {
	ends := time.Now().Add(s.config.Duration)
	if p.Admin != "" {
		return s.sessions.encode(session{Ends: ends.Unix(), Admin: p.Admin, Password: s.passwordID(p.Admin)})
	}
	if !ExpiryWithin(ends, p.Key.Expires) {
		ends = p.Key.Expires
	}
	return s.sessions.encode(session{Ends: ends.Unix(), Secret: p.Secret})
}

// A Refusal is a reason to refuse a sign-in, with a text for people.
type Refusal struct {
	Status int
	Text   string
}

func (e *Refusal) Error() string { return e.Text }

// The reasons to refuse a sign-in.
var (
	ErrWrongPassword   = &Refusal{http.StatusForbidden, "The name or the password is wrong."}
	ErrWrongKey        = &Refusal{http.StatusForbidden, "There is no such key, or it does not work any more."}
	ErrTooManyAttempts = &Refusal{http.StatusTooManyRequests, "There were too many attempts. Please wait a minute."}
)

// CheckPassword returns the administrator with the given name and password. One that is
// generated takes no attempt.
func (s *SignIn) CheckPassword(r *http.Request, name, password string) (Person, error) {
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
			return Person{}, err
		}
		if !exists {
			hash = s.decoy
		}
		if hash == nil { // no administrator has chosen a password
			return Person{}, ErrWrongPassword
		}
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return Person{}, r.Context().Err()
		}
		matches = hash.Matches(password) && exists
		<-slots
	}
	if !matches {
		return Person{}, ErrWrongPassword
	}
	s.known.add(name, addr, time.Now())
	return Person{Admin: name}, nil
}

// takePasswordAttempt takes an attempt for a name from an address, and returns the semaphore
// for hashing the password. Each known browser has a limit of its own, so that its cookie does
// not help to guess a password.
func (s *SignIn) takePasswordAttempt(r *http.Request, name, addr string) (slots chan struct{}, err error) {
	if browser := s.knownBrowser(r, name); browser != "" {
		return s.knownHashing, s.takeAttempt(r.Context(), "browser "+browser, AttemptsPerAddress)
	}
	if err := s.takeAttempt(r.Context(), "address "+addr, AttemptsPerAddress); err != nil {
		return nil, err
	}
	if s.known.has(name, addr, time.Now()) {
		return s.knownHashing, nil
	}
	err = s.takeAttempt(r.Context(), "network "+clientaddr.Network(addr), AttemptsPerNetwork)
	if !errors.Is(err, ErrTooManyAttempts) {
		return s.newHashing, err
	}
	// A name of any length has a short hash.
	return s.hashing, s.takeAttempt(r.Context(), "name "+llmhttp.HashSecret(name), AttemptsPerName)
}

// CheckKey returns the person who signs in with an API key.
func (s *SignIn) CheckKey(r *http.Request, secret string) (Person, error) {
	if !s.config.Keys {
		return Person{}, ErrWrongKey
	}
	if err := s.takeAttempt(r.Context(), "address "+s.config.ClientAddr(r), AttemptsPerAddress); err != nil {
		return Person{}, err
	}
	if secret == "" || secret == llmhttp.Anonymous { // which a store can contain, but nobody can present
		return Person{}, ErrWrongKey
	}
	p, err := s.keyPerson(r.Context(), llmhttp.HashSecret(secret))
	if errors.Is(err, ErrNobody) {
		err = ErrWrongKey
	}
	return p, err
}

// IsFirstRefusal reports whether the client was not refused in the last minute because of
// too many attempts.
func (s *SignIn) IsFirstRefusal(r *http.Request) bool {
	return s.takeAttempt(r.Context(), "refused "+s.config.ClientAddr(r), RefusalsPerAddress) == nil
}

// takeAttempt takes one of the attempts that rate gives to key. It returns
// ErrTooManyAttempts if there is none left.
func (s *SignIn) takeAttempt(ctx context.Context, key string, rate llmhttp.Rate) error {
	levels, err := s.attempts.Take(
		ctx,
		llmhttp.BucketAmount{Subject: llmhttp.SubjectID{Kind: "sign-in", ID: key}, Bucket: "attempts", Rate: rate, Amount: 1},
	)
	if err == nil && levels[0].RetryAfter > 0 {
		return ErrTooManyAttempts
	}
	return err
}

// sessionCookie is the name of the cookie that has the session.
const sessionCookie = "llmhttp_console"

// Begin begins a session of p in place of that which the browser has, if any, and stores it in the browser. The
// cookies are for pages below path.
func (s *SignIn) Begin(w http.ResponseWriter, r *http.Request, path string, p *Person) {
	if old, err := r.Cookie(sessionCookie); err == nil {
		s.sessions.end(old.Value, time.Now())
	}
	s.setSession(w, r, path, s.newSession(p))
	if p.Admin != "" {
		s.rememberBrowser(w, r, path, p.Admin)
	}
}

// End ends the session of p and removes it from the browser.
func (s *SignIn) End(w http.ResponseWriter, r *http.Request, path, cookie string) {
	s.sessions.end(cookie, time.Now())
	s.setSession(w, r, path, "")
}

// setSession stores a session in the browser. An empty value removes it.
func (s *SignIn) setSession(w http.ResponseWriter, r *http.Request, path, value string) {
	cookie := &http.Cookie{Name: sessionCookie, Value: value, Path: path, MaxAge: int(min(s.config.Duration.Seconds(), math.MaxInt32))}
	if value == "" {
		cookie.MaxAge = -1
	}
	s.setCookie(w, r, cookie)
}

// setCookie sends a cookie that neither scripts nor other sites can use.
func (s *SignIn) setCookie(w http.ResponseWriter, r *http.Request, cookie *http.Cookie) {
	cookie.HttpOnly, cookie.SameSite = true, http.SameSiteStrictMode
	cookie.Secure = r.TLS != nil || !s.config.PlainHTTP && !clientaddr.IsLocal(r)
	http.SetCookie(w, cookie)
}

// browserCookie is the name of the cookie that tells that an administrator has signed in
// with the browser. It has the form of a session, but opens none.
const browserCookie = "llmhttp_console_browser"

// rememberBrowser makes the browser known as one of the administrator with that name. The cookie is
// sent to the sign-in page only, and stays when the person signs out. That of another
// administrator is replaced.
func (s *SignIn) rememberBrowser(w http.ResponseWriter, r *http.Request, path, name string) {
	s.setCookie(w, r, &http.Cookie{
		Name: browserCookie, Path: path + "sign-in", MaxAge: int(knownFor.Seconds()),
		Value: s.browsers.encode(session{Admin: name, Password: s.passwordID(name), Ends: time.Now().Add(knownFor).Unix()}),
	})
}

// knownBrowser returns the ID of the browser that sends r if the administrator with that
// name has signed in with it lately, with the present password. Otherwise it returns "".
func (s *SignIn) knownBrowser(r *http.Request, name string) string {
	cookie, err := r.Cookie(browserCookie)
	if err != nil {
		return ""
	}
	sess, ok := s.browsers.decode(cookie.Value, time.Now())
	if !ok || sess.Admin != name || !s.hasPassword(sess) {
		return ""
	}
	return sess.ID
}
