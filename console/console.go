package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// Options configure a [Handler]. Either User or SignIn is required.
type Options struct {
	// User says who sent a request, for hosts that have a sign-in of their own.
	User UserFunc

	// SignIn lets people sign in at the console.
	SignIn *SignIn

	// Path is the path below which the host mounts the Handler. It begins and
	// ends with a slash. Empty means "/console/".
	Path string

	// Usage has the usage to show. If it is not a [llmhttp.UsageReporter], the
	// console shows no usage.
	Usage llmhttp.UsageStore

	// Limiter is the Limiter of the API. With it the console shows how much of
	// each limit is used. It may be nil. If it is not a
	// [llmhttp.ConcurrencyCounter], concurrent requests are those that Monitor sees.
	Limiter llmhttp.Limiter

	// Cost returns the cost of usage in US dollars. If nil, costs are not shown.
	Cost func(llmhttp.UsageSum) float64

	// API is the Handler of the API, which the playground calls. Its KeyStore
	// must be one that [KeyStore] returned. If nil, there is no playground.
	API http.Handler

	// APIURL is the address of the API in the examples of the playground, such
	// as "https://llm.example.com/v1". Empty means /v1 on the server of the
	// console.
	APIURL string

	// Monitor collects what the overview shows. Nil means that the console has
	// no overview.
	Monitor *Monitor

	// Router returns the targets to show in the overview, such as the method
	// Status of a [route.Router]. It may be nil.
	Router func() []route.TargetStatus

	// Audit receives what people do. If nil, Logger does, at level Info. The
	// console itself shows the last 1000 entries since the process began.
	Audit func(context.Context, AuditEntry)

	// Logger receives the errors that people are not told. Nil means
	// slog.Default(). Secrets are not logged.
	Logger *slog.Logger
}

// A Handler serves the console. Its methods may be called concurrently.
type Handler struct {
	keys    llmhttp.KeyManager
	opts    Options
	usage   llmhttp.UsageReporter // nil if the host has no UsageReporter
	user    UserFunc
	signIn  *signIn // nil if the host has its own
	audit   *auditLog
	created nonces // of forms whose reply has a secret
	handler http.Handler
}

// New returns a Handler for keys. It copies opts. It returns an error if opts do
// not say who may use the console, or if a field is not valid.
func New(keys llmhttp.KeyManager, opts *Options) (*Handler, error) {
	h := &Handler{keys: keys}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.Path == "" {
		h.opts.Path = "/console/"
	}
	if h.opts.Logger == nil {
		h.opts.Logger = slog.Default()
	}
	h.usage, _ = h.opts.Usage.(llmhttp.UsageReporter)
	h.audit = newAuditLog(h.opts.Audit, h.opts.Logger)
	switch {
	case keys == nil:
		return nil, errors.New("console: nil KeyManager")
	case !strings.HasPrefix(h.opts.Path, "/") || !strings.HasSuffix(h.opts.Path, "/") || strings.ContainsAny(h.opts.Path, "{}"):
		return nil, errors.New("console: Options.Path must begin and end with a slash and have no braces")
	case (h.opts.User == nil) == (h.opts.SignIn == nil):
		return nil, errors.New("console: Options must have either User or SignIn")
	case h.opts.SignIn != nil:
		s, err := newSignIn(*h.opts.SignIn, keys)
		if err != nil {
			return nil, err
		}
		h.signIn, h.user = s, s.user
	default:
		h.user = h.opts.User
	}
	h.handler = h.newMux()
	return h, nil
}

func (h *Handler) newMux() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(*page) error) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+h.opts.Path+path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, serve) })
	}
	handle("GET {$}", h.serveHome)
	handle("GET overview", h.serveOverview)
	handle("GET overview/chart.svg", h.serveOverviewChart)
	handle("GET keys", h.serveKeys)
	handle("GET keys/new", h.serveNewKey)
	handle("POST keys/new", h.createKey)
	handle("GET key", h.serveKey)
	handle("POST key", h.updateKey)
	handle("GET key/rotate", h.serveRotateKey)
	handle("POST key/rotate", h.rotateKey)
	handle("GET key/revoke", h.serveRevokeKey)
	handle("POST key/revoke", h.revokeKey)
	handle("POST key/suspend", h.suspendKey)
	handle("POST key/resume", h.resumeKey)
	handle("GET usage", h.serveUsage)
	handle("GET usage/chart.svg", h.serveUsageChart)
	handle("GET usage/table.csv", h.serveUsageCSV)
	handle("GET playground", h.servePlayground)
	handle("GET playground/models", h.callAPI)
	handle("POST playground/{endpoint}", h.callAPI)
	handle("GET audit", h.serveAudit)
	mux.HandleFunc("GET "+h.opts.Path+"static/{file}", serveStatic)
	if h.signIn != nil {
		mux.HandleFunc("GET "+h.opts.Path+"sign-in", h.serveSignIn)
		mux.HandleFunc("POST "+h.opts.Path+"sign-in", h.postSignIn)
		handle("POST sign-out", h.signOut)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { h.showError(w, r, nil, errNotFound) })

	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.showError(w, r, nil, &pageError{http.StatusForbidden, "This request came from another site."})
	}))
	return protection.Handler(mux)
}

// maxForm is the maximum size of a form in bytes.
const maxForm = 64 << 10

// contentSecurityPolicy allows what the console's own files do. Scripts and
// styles inside of pages have no effect.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	h.handler.ServeHTTP(w, r)
}

// A page is a request of a person who is signed in, and the reply.
type page struct {
	h    *Handler
	w    http.ResponseWriter
	r    *http.Request
	user User
}

// serve finds out who sent r and calls serve. It shows the error that serve
// returns.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, serve func(*page) error) {
	user, err := h.user(r)
	switch {
	case errors.Is(err, ErrNoUser) && h.signIn != nil:
		h.askToSignIn(w, r)
		return
	case errors.Is(err, ErrNoUser):
		h.showError(w, r, nil, &pageError{http.StatusForbidden, "You may not use this console."})
		return
	case err == nil && user.Name == "":
		err = errors.New("console: the UserFunc returned a User without a Name")
		fallthrough
	case err != nil:
		h.showError(w, r, nil, err)
		return
	}
	p := &page{h: h, w: w, r: r, user: user}
	if err := serve(p); err != nil {
		h.showError(w, r, &p.user, err)
	}
}

// A pageError is an error that people are told.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

var (
	errNotFound  = &pageError{http.StatusNotFound, "There is no such page."}
	errNoKey     = &pageError{http.StatusNotFound, "There is no such key."}
	errForbidden = &pageError{http.StatusForbidden, "You may not do this."}
)

// showError replies with an error page. Errors other than a pageError are logged
// and not shown. The user is nil if it is not known.
func (h *Handler) showError(w http.ResponseWriter, r *http.Request, user *User, err error) {
	shown, ok := errors.AsType[*pageError](err)
	switch {
	case ok:
	case errors.Is(err, llmhttp.ErrKeyNotFound):
		shown = errNoKey
	case errors.Is(err, llmhttp.ErrKeyRevoked):
		shown = &pageError{http.StatusConflict, "The key is revoked."}
	case r.Context().Err() != nil:
		return
	default:
		h.opts.Logger.ErrorContext(r.Context(), "console: request failed", "path", r.URL.Path, "error", err)
		shown = &pageError{http.StatusInternalServerError, "Something went wrong. The server's log has the reason."}
	}
	if err := h.render(w, r, user, shown.status, "error.html", "Error", shown.text); err != nil {
		http.Error(w, shown.text, shown.status)
	}
}

// parseForm reads the form of a POST.
func (p *page) parseForm() error {
	p.r.Body = http.MaxBytesReader(p.w, p.r.Body, maxForm)
	if err := p.r.ParseForm(); err != nil {
		return &pageError{http.StatusBadRequest, "The form could not be read, or it is too long."}
	}
	return nil
}

// redirect sends the browser to another page of the console. It returns nil.
func (p *page) redirect(path string) error {
	http.Redirect(p.w, p.r, p.h.opts.Path+path, http.StatusSeeOther)
	return nil
}

// serveHome redirects to the first page that the person may see.
func (h *Handler) serveHome(p *page) error {
	if h.showsOverview(&p.user) {
		return p.redirect("overview")
	}
	return p.redirect("keys")
}

func (h *Handler) showsOverview(u *User) bool {
	return u.Admin && (h.opts.Monitor != nil || h.opts.Router != nil)
}

func (h *Handler) serveAudit(p *page) error {
	if !p.user.Admin {
		return errForbidden
	}
	return p.render("audit.html", "Audit log", h.audit.newest())
}
