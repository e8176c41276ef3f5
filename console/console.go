// Handler: routes, and who sends a request. The functions that serve a route are methods of the part
// for its topic. They get a request and return an error, which the renderer shows.

package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/console/internal/session"
	"github.com/llmhttp/llmhttp/manage"
)

// A Handler serves the console. Its methods may be called concurrently.
type Handler struct {
	user       UserFunc // Options.User, or that of signIn
	renderer   *renderer
	signIn     *signInPages // nil if the host has its own sign-in
	overview   *overviewPages
	keys       *keyPages
	secrets    *secretPages
	accounts   *accountPages // nil if the store keeps no accounts
	usage      *usagePages
	playground *playground
	audit      *auditLog
	gate       *reportGate
	handler    http.Handler
}

// New returns a Handler for keys, and for their accounts if keys is a [manage.AccountManager] too: a
// wrapper that embeds only the KeyManager of a store hides the accounts. It copies opts. It returns an
// error if opts do not have exactly one of User and SignIn, if a field is not valid, or if Usage cannot
// report.
func New(keys manage.KeyManager, opts *Options) (*Handler, error) {
	if isNil(keys) {
		return nil, errors.New("console: nil KeyManager")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	h, err := newHandler(keys, o)
	if err != nil {
		return nil, err
	}
	if o.SignIn != nil {
		config := *o.SignIn
		config.ClientAddr = o.clientAddr()
		s, err := session.New(session.Config(config), keys)
		if err != nil {
			return nil, err
		}
		h.user = personUser(s)
		h.signIn = &signInPages{renderer: h.renderer, signIn: s, audit: h.audit}
	}
	h.handler = h.newMux(o.Path)
	return h, nil
}

// newHandler returns a Handler without a sign-in and without routes, which New adds.
func newHandler(keys manage.KeyManager, o *Options) (*Handler, error) {
	audit, gate := newAuditLog(o), newReportGate(o.ReportTimeout)
	reports := new(usageReports)
	limits := &limitReader{limiter: o.Limiter, monitor: o.Monitor, logger: o.Logger}
	if o.Usage != nil {
		reporter, err := manage.ReporterOf(o.Usage)
		if err != nil {
			return nil, fmt.Errorf("console: Options.Usage: %w", err)
		}
		reports.store = gatedUsage{reporter, gate}
		limits.usage = reports.store
	}
	menu, accounts := newMenu(keys, o), accountsOf(keys)
	if accounts != nil {
		accounts = gatedAccounts{accounts, gate}
	}
	keys = gatedKeys{keys, gate} // which hides other methods of keys
	h := &Handler{
		user:     o.User,
		renderer: &renderer{path: o.Path, loginURL: o.LoginURL, menu: menu, logger: o.Logger},
		overview: &overviewPages{monitor: o.Monitor, targets: o.Targets},
		keys: &keyPages{
			keys:       keys,
			accounts:   accounts,
			limits:     limits,
			reports:    reports,
			audit:      audit,
			playground: o.API != nil,
		},
		secrets:    &secretPages{keys: keys, audit: audit},
		usage:      &usagePages{keys: keys, accounts: accounts, reports: reports},
		playground: &playground{keys: keys, api: o.API, prefix: o.APIPrefix, apiURL: o.APIURL, remoteAddr: o.remoteAddr()},
		audit:      audit,
		gate:       gate,
	}
	if accounts != nil {
		h.accounts = &accountPages{accounts: accounts, limits: limits, reports: reports, audit: audit}
	}
	return h, nil
}

// newMux returns the handler of all paths below path.
func (h *Handler) newMux(path string) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve http.HandlerFunc) {
		method, rest, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+path+rest, serve)
	}
	for pattern, serve := range h.routes() {
		handle(pattern, h.authenticate(serve))
	}
	for pattern, serve := range h.forms() {
		handle("POST "+pattern, h.renderer.withForm(h.authenticate(serve)))
	}
	handle("GET static/{file}", pages.ServeStatic)
	if h.signIn != nil {
		handle("GET sign-in", h.signIn.serve)
		handle("POST sign-in", h.renderer.withForm(h.signIn.post))
		handle("POST sign-out", h.authenticate(h.signIn.signOut))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { h.renderer.showError(w, r, nil, errNotFound) })

	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.renderer.showError(w, r, nil, &pageError{http.StatusForbidden, "This request came from another site."})
	}))
	return protection.Handler(mux)
}

// routes returns the functions that serve the requests of people who are signed
// in, by method and path, except for forms.
func (h *Handler) routes() map[string]func(*request) error {
	routes := map[string]func(*request) error{
		"GET {$}":                serveHome,
		"GET overview":           adminsOnly(h.overview.serve),
		"GET keys":               h.keys.serveList,
		"GET keys/new":           h.secrets.serveCreate,
		"GET key":                h.keys.serve,
		"GET key/rotate":         h.secrets.serveRotate,
		"GET key/revoke":         h.keys.serveRevoke,
		"GET usage":              h.usage.serve,
		"GET usage/table.csv":    h.usage.serveCSV,
		"GET playground":         h.playground.serve,
		"GET playground/models":  h.playground.callAPI,
		"POST playground/{mode}": h.playground.callAPI,
		"GET audit":              adminsOnly(h.audit.serve),
	}
	if h.accounts != nil {
		routes["GET accounts"] = adminsOnly(h.accounts.serveList)
		routes["GET accounts/new"] = adminsOnly(h.accounts.serveCreate)
		routes["GET account"] = h.accounts.serve
	}
	return routes
}

// forms returns the functions that take the forms of people who are signed in, by path.
func (h *Handler) forms() map[string]func(*request) error {
	forms := map[string]func(*request) error{
		"keys/new":    h.secrets.create,
		"key":         h.keys.update,
		"key/rotate":  h.secrets.rotate,
		"key/revoke":  h.keys.revoke,
		"key/suspend": adminsOnly(h.keys.suspend),
		"key/resume":  adminsOnly(h.keys.resume),
	}
	if h.accounts != nil {
		forms["accounts/new"] = adminsOnly(h.accounts.create)
		forms["account"] = adminsOnly(h.accounts.update)
		forms["account/credit"] = adminsOnly(h.accounts.addCredit)
	}
	return forms
}

// adminsOnly returns a function that calls serve for administrators and refuses others.
func adminsOnly(serve func(*request) error) func(*request) error {
	return func(q *request) error {
		if !q.user.Admin {
			return errForbidden
		}
		return serve(q)
	}
}

// contentSecurityPolicy permits the scripts, styles and images in static. Inline
// scripts and styles have no effect.
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

// authenticate returns a handler that calls serve if the UserFunc returns a User,
// and shows the error that serve returns.
func (h *Handler) authenticate(serve func(*request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, err := h.user(r)
		if err == nil && user.Name == "" {
			err = errors.New("console: the UserFunc returned a User without a Name")
		}
		if err == nil && !user.Admin && user.Account == "" { // in queries, no account means all of them
			err = errNoAccount
		}
		switch {
		case err == nil:
			r = r.WithContext(h.gate.withVisit(r.Context(), &user))
			if err := serve(&request{renderer: h.renderer, w: w, r: r, user: user}); err != nil {
				h.renderer.showError(w, r, &user, err)
			}
		case errors.Is(err, ErrNoUser) && h.signIn != nil:
			h.signIn.askToSignIn(w, r)
		case errors.Is(err, ErrNoUser):
			h.renderer.showError(w, r, nil, errNotSignedIn)
		default:
			h.renderer.showError(w, r, nil, err)
		}
	}
}

// serveHome redirects to the first page that the person may see.
func serveHome(q *request) error {
	http.Redirect(q.w, q.r, q.renderer.nav(q.r, &q.user)[0].Path, http.StatusSeeOther)
	return nil
}
