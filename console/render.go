// Renders pages.

package console

import (
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/pages"
	"github.com/llmhttp/llmhttp/manage"
)

var templates = pages.Parse(template.FuncMap{
	"limits": func(l llmhttp.Limits) []limitUse { return limitNames(&l) },
	"labels": formatLabels,
})

// A renderer renders pages and reports errors.
type renderer struct {
	path     string // Options.Path
	loginURL string // Options.LoginURL
	menu     []menuEntry
	logger   *slog.Logger
}

// render replies with a page, which user sees, or nobody who is signed in if that is nil. notice may be empty.
func (rd *renderer) render(w http.ResponseWriter, r *http.Request, status int, name, title string, user *User, notice string, data any) error {
	v := &pages.View{Path: rd.path, Title: title, Notice: notice, Data: data}
	if user != nil {
		v.User, v.SignOut, v.Nav = user, user.session != "", rd.nav(r, user)
	}
	return templates.Render(w, status, name, v)
}

// nav returns links to the pages that user may see. The link to the page that r
// requests is the current one.
func (rd *renderer) nav(r *http.Request, user *User) []pages.Link {
	var nav []pages.Link
	page := strings.TrimPrefix(r.URL.Path, rd.path)
	switch {
	case strings.HasPrefix(page, "key"): // such as keys/new or key/revoke
		page = "keys"
	case strings.HasPrefix(page, "account") && user.Admin:
		page = "accounts"
	}
	for _, e := range rd.menu {
		if e.of == everyone || (e.of == admins) == user.Admin {
			nav = append(nav, pages.Link{Path: rd.path + e.path, Title: e.title, Current: page == e.path})
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
