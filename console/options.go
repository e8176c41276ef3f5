// Options.

package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/clientaddr"
	"github.com/llmhttp/llmhttp/route"
)

// Options configure a [Handler]. Either User or SignIn is required.
type Options struct {
	// User returns who sent a request, for hosts that have a sign-in of their own.
	User UserFunc

	// LoginURL is where people without a session sign in at the host: a path on the server of the
	// console, such as "/login", or a URL of http or https. The page that tells them that they are
	// not signed in, which is sent when User returns an [ErrNoUser], links to it. If empty, there is
	// no link. It must be empty without User.
	LoginURL string

	// SignIn lets people sign in at the console.
	SignIn *SignIn

	// TrustedProxies are the addresses of the proxies in front of the console. For a
	// request from one of them, the client's address is the last one in the header
	// X-Forwarded-For that is not in TrustedProxies; each proxy must append the
	// address of its client to that header. For other requests, and with no
	// TrustedProxies, it is r.RemoteAddr. Without them, all clients behind a proxy
	// share the limit of sign-in attempts, so that any of them can use it up. Requests of
	// the playground have the client's address as their RemoteAddr.
	//
	// TrustedProxies are not used if SignIn.ClientAddr is set.
	TrustedProxies []netip.Prefix

	// Path is the path below which the host mounts the Handler. It begins and
	// ends with a slash. Empty means "/console/".
	Path string

	// Usage is the UsageStore of the API, of which [manage.ReporterOf] must find a reporter. Costs
	// are those that it has stored, shown as US dollars. If nil, the console shows no usage.
	Usage llmhttp.UsageStore

	// ReportTimeout is how long a page may take for the reports and lists that it shows, which are
	// read three at a time in all, and two at a time for each administrator and for each account.
	// Others wait for their turn; a page whose time ends, or of which 10 others of the same person
	// wait, says so. Zero means 30 seconds; negative means no limit.
	ReportTimeout time.Duration

	// Limiter is the Limiter of the API. With it the console shows how much of
	// each limit is used. It may be nil. If it is not a
	// [manage.ConcurrencyCounter], concurrent requests are those that Monitor sees.
	Limiter llmhttp.Limiter

	// API is the Handler of the API, which the playground calls. Its KeyStore
	// must be one that [NewKeyStore] returned. If nil, there is no playground.
	API http.Handler

	// APIPrefix is the Options.Prefix of API. Empty means that it has none.
	APIPrefix string

	// APIURL is the address of the API in the examples of the playground, such as
	// "https://llm.example.com/v1". Empty means /v1 below APIPrefix on the server of the console.
	APIURL string

	// Monitor collects what the overview shows. Nil means that the console has no overview.
	Monitor *Monitor

	// Targets returns the targets to show in the overview, such as the method
	// Status of a [route.Router]. It may be nil.
	Targets func() []route.TargetStatus

	// Audit is called for each change of a key, sign-in, failed sign-in and
	// sign-out. If nil, Logger gets the entries, at level Info. The console
	// itself shows the last entries since the process began: 1000 of administrators,
	// 1000 of other people and 1000 failed sign-ins. Attempts to sign in that are
	// refused because there were too many are reported once a minute for each address.
	Audit func(context.Context, AuditEntry)

	// Logger gets the errors whose text the console does not show. Nil means
	// slog.Default(). Secrets are not logged.
	Logger *slog.Logger
}

// withDefaults returns a copy of opts, which may be nil, with the defaults of empty
// fields. It returns an error if opts do not have exactly one of User and SignIn, or if
// a field is not valid.
func (opts *Options) withDefaults() (*Options, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := checkInterfaces(&o); err != nil {
		return nil, err
	}
	o.Path = cmp.Or(o.Path, "/console/")
	o.ReportTimeout = cmp.Or(o.ReportTimeout, defaultReportTimeout)
	o.TrustedProxies = slices.Clone(o.TrustedProxies)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if !strings.HasPrefix(o.Path, "/") || !strings.HasSuffix(o.Path, "/") || strings.ContainsAny(o.Path, "{}") {
		return nil, errors.New("console: Options.Path must begin and end with a slash and have no braces")
	}
	if (o.User == nil) == (o.SignIn == nil) {
		return nil, errors.New("console: Options must have either User or SignIn")
	}
	return &o, cmp.Or(o.checkLogin(), o.checkAPI(), o.checkProxies())
}

// checkInterfaces returns an error that names the first interface in opts that holds a nil pointer or
// function.
func checkInterfaces(opts *Options) error {
	v := reflect.ValueOf(opts).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Interface && !f.IsNil() && isNil(f.Interface()) {
			return fmt.Errorf("console: Options.%s holds a nil %T", v.Type().Field(i).Name, f.Interface())
		}
	}
	return nil
}

// isNil reports whether v is nil or holds a nil pointer or function: a variable that was never set, whose methods
// would fail at the first request.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}

// checkLogin checks the address of the host's login.
func (o *Options) checkLogin() error {
	switch {
	case o.LoginURL == "":
		return nil
	case o.User == nil:
		return errors.New("console: Options.LoginURL needs Options.User: with SignIn, the console has its own page to sign in")
	case !isWebURL(o.LoginURL) && !isPath(o.LoginURL):
		return errors.New("console: Options.LoginURL must be a path that begins with a slash, or a URL of http or https")
	}
	return nil
}

// isPath reports whether s is a path with an optional query. It must not lead to another server:
// browsers read a backslash as a slash, and ignore control characters.
func isPath(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") && !strings.Contains(s, `\`)
}

// isWebURL reports whether s is a URL of http or https with a host.
func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// checkAPI checks the addresses of the API.
func (o *Options) checkAPI() error {
	if p := o.APIPrefix; p != "" && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")) {
		return errors.New("console: Options.APIPrefix must begin with a slash and must not end with one")
	}
	if o.APIURL != "" && !isWebURL(o.APIURL) {
		return errors.New("console: Options.APIURL must be a URL of http or https")
	}
	return nil
}

func (o *Options) checkProxies() error {
	for i, p := range o.TrustedProxies {
		if !p.IsValid() {
			return fmt.Errorf("console: Options.TrustedProxies[%d] is not valid", i)
		}
	}
	return nil
}

// clientAddr returns the function that returns the address of a client.
func (o *Options) clientAddr() func(*http.Request) string {
	if o.SignIn != nil && o.SignIn.ClientAddr != nil {
		return o.SignIn.ClientAddr
	}
	remoteAddr := o.remoteAddr()
	return func(r *http.Request) string { return clientaddr.Client(remoteAddr(r)) }
}

// remoteAddr returns the function that returns the RemoteAddr of requests of the playground to
// the API, which is what the API logs as the client.
func (o *Options) remoteAddr() func(*http.Request) string {
	if o.SignIn != nil && o.SignIn.ClientAddr != nil {
		return o.SignIn.ClientAddr
	}
	return func(r *http.Request) (addr string) {
		// Other code of the host, such as User, may depend on the address of the connection.
		seen := func(_ http.ResponseWriter, r *http.Request) { addr = r.RemoteAddr }
		llmhttp.TrustProxies(http.HandlerFunc(seen), o.TrustedProxies).ServeHTTP(nil, r)
		return addr
	}
}

const day = 24 * time.Hour
