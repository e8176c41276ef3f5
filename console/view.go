package console

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

//go:embed templates static
var files embed.FS

// A view is what the layout shows around the content of a page.
type view struct {
	Path    string // of the console
	Page    string // the name of the template
	Title   string
	User    *User // nil if nobody is signed in
	SignOut bool
	Nav     []navLink
	Data    any
}

// A chartView is an image of a chart in a page.
type chartView struct{ Src, Alt string }

type navLink struct {
	Path, Title string
	Current     bool
}

// pages are the templates of pages by name.
var pages = parsePages()

func parsePages() map[string]*template.Template {
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	layout := template.New("layout.html").Funcs(template.FuncMap{
		"time": formatTime, "ago": formatAgo, "date": formatDate, "count": formatCount, "money": formatMoney,
		"duration": formatDuration, "percent": formatPercent, "list": formatAny, "status": func(k llmhttp.KeyInfo) llmhttp.KeyStatus { return k.Status(time.Now()) },
		"static": staticPath, "chart": func(src, alt string) chartView { return chartView{src, alt} },
	})
	template.Must(layout.ParseFS(files, "templates/layout.html", "templates/parts.html"))
	parsed := make(map[string]*template.Template)
	for _, name := range names {
		base := path.Base(name)
		if base != "layout.html" && base != "parts.html" {
			parsed[base] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
		}
	}
	return parsed
}

func (p *page) render(name, title string, data any) error {
	return p.renderStatus(http.StatusOK, name, title, data)
}

func (p *page) renderStatus(status int, name, title string, data any) error {
	return p.h.render(p.w, p.r, &p.user, status, name, title, data)
}

// render replies with a page. The user is nil if nobody is signed in.
func (h *Handler) render(w http.ResponseWriter, r *http.Request, user *User, status int, name, title string, data any) error {
	v := &view{Path: h.opts.Path, Page: strings.TrimSuffix(name, ".html"), Title: title, User: user, Data: data}
	if user != nil {
		v.SignOut = h.signIn != nil && user.session != ""
		v.Nav = h.nav(r, user)
	}
	var b bytes.Buffer
	if err := pages[name].Execute(&b, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails if the client has left
	return nil
}

func (h *Handler) nav(r *http.Request, user *User) []navLink {
	var nav []navLink
	add := func(shown bool, path, title string) {
		if shown {
			at := strings.TrimPrefix(r.URL.Path, h.opts.Path)
			current := at == path || path == "keys" && strings.HasPrefix(at, "key")
			nav = append(nav, navLink{h.opts.Path + path, title, current})
		}
	}
	add(h.showsOverview(user), "overview", "Overview")
	add(true, "keys", "API keys")
	add(h.usage != nil, "usage", "Usage")
	add(h.opts.API != nil, "playground", "Playground")
	add(user.Admin, "audit", "Audit log")
	return nav
}
