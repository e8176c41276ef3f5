package console

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
	"github.com/llmhttp/llmhttp/manage"
)

//go:embed templates static
var files embed.FS

// A view is the data of layout.html and of the template of a page inside it.
type view struct {
	Path    string // of the console
	Page    string // the file name of the template without ".html"
	Title   string
	User    *User // nil if nobody is signed in
	SignOut bool  // whether the user can sign out at the console
	Nav     []navLink
	Data    any // what the page shows
}

// A navLink is a link in the navigation.
type navLink struct {
	Path, Title string
	Current     bool
}

// templates are the parsed templates of the pages by file name.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	layout := template.New("layout.html").Funcs(template.FuncMap{
		"time": formatTime, "ago": formatAgo, "used": formatUsed, "date": formatDate, "duration": formatDuration,
		"count": formatCount, "money": formatMoney, "percent": formatPercent,
		"scopes": keytext.FormatList[llmhttp.Scope], "scopeHint": keytext.ScopeHint,
		"models": keytext.FormatList[string],
		"limits": func(l llmhttp.Limits) []limitUse { return limitNames(&l) },
		"labels": formatLabels,
		"status": func(k manage.KeyInfo) manage.KeyStatus { return k.Status(time.Now()) },
		"static": staticPath,
	})
	template.Must(layout.ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/chart.html"))
	parsed := make(map[string]*template.Template)
	for _, name := range names {
		base := path.Base(name)
		if layout.Lookup(base) == nil { // a page
			parsed[base] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
		}
	}
	return parsed
}

// A renderer renders pages and reports errors.
type renderer struct {
	path     string // Options.Path
	loginURL string // Options.LoginURL
	menu     []menuEntry
	logger   *slog.Logger
}

// render replies with a page. It sets the fields of v that do not depend on the page.
func (rd *renderer) render(w http.ResponseWriter, r *http.Request, status int, name string, v *view) error {
	v.Path, v.Page = rd.path, strings.TrimSuffix(name, ".html")
	if v.User != nil {
		v.SignOut = v.User.session != ""
		v.Nav = rd.nav(r, v.User)
	}
	var b bytes.Buffer
	if err := templates[name].Execute(&b, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails if the client has left
	return nil
}

// nav returns links to the pages that user may see. The link to the page that r
// requests is the current one.
func (rd *renderer) nav(r *http.Request, user *User) []navLink {
	var nav []navLink
	page := strings.TrimPrefix(r.URL.Path, rd.path)
	switch {
	case strings.HasPrefix(page, "key"): // such as keys/new or key/revoke
		page = "keys"
	case strings.HasPrefix(page, "account") && user.Admin:
		page = "accounts"
	}
	for _, e := range rd.menu {
		if e.of == everyone || (e.of == admins) == user.Admin {
			nav = append(nav, navLink{rd.path + e.path, e.title, page == e.path})
		}
	}
	return nav
}

// A menuEntry is a page to which the navigation links.
type menuEntry struct {
	path, title string
	of          people // who sees it
}

// people are administrators, others or both.
type people int

const (
	everyone people = iota
	admins
	owners
)

// newMenu returns the entries of the pages that a console for keys with the options o has.
func newMenu(keys manage.KeyManager, o *Options) []menuEntry {
	var menu []menuEntry
	if o.Monitor != nil || o.Targets != nil {
		menu = append(menu, menuEntry{"overview", "Overview", admins})
	}
	menu = append(menu, menuEntry{"keys", "API keys", everyone})
	if accountsOf(keys) != nil {
		menu = append(menu, menuEntry{"accounts", "Accounts", admins}, menuEntry{"account", "Account", owners})
	}
	if o.Usage != nil {
		menu = append(menu, menuEntry{"usage", "Usage", everyone})
	}
	if o.API != nil {
		menu = append(menu, menuEntry{"playground", "Playground", everyone})
	}
	return append(menu, menuEntry{"audit", "Audit log", admins})
}
