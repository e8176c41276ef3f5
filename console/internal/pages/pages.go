// Package pages has what pages of the console look like: the templates, the static files and the forms of
// numbers and times.
package pages

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

//go:embed templates static
var files embed.FS

// A View is the data of layout.html and of the template of a page inside it.
type View struct {
	Path    string // of the console
	Page    string // the file name of the template without ".html", which Render sets
	Title   string
	User    any  // nil if nobody is signed in
	SignOut bool // whether the user can sign out at the console
	Nav     []Link
	Notice  string // what the form that led to the page has done; may be empty
	Data    any    // what the page shows
}

// A Link is a link in the navigation.
type Link struct {
	Path, Title string
	Current     bool
}

// Templates are the parsed templates of pages by file name.
type Templates map[string]*template.Template

// Parse returns the templates, which may call funcs.
func Parse(funcs template.FuncMap) Templates {
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	all := template.FuncMap{
		"time": FormatTime, "ago": FormatAgo, "used": FormatUsed, "date": FormatDate, "duration": FormatDuration,
		"count": FormatCount, "money": FormatMoney, "percent": FormatPercent,
		"scopes": keytext.FormatList[llmhttp.Scope], "scopeHint": keytext.ScopeHint,
		"models": keytext.FormatList[string],
		"status": func(k manage.KeyInfo) manage.KeyStatus { return k.Status(time.Now()) },
		"static": staticPath,
	}
	maps.Copy(all, funcs)
	layout := template.New("layout.html").Funcs(all)
	template.Must(layout.ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/chart.html"))
	parsed := make(Templates)
	for _, name := range names {
		base := path.Base(name)
		if layout.Lookup(base) == nil { // a page
			parsed[base] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
		}
	}
	return parsed
}

// Render replies with a page.
func (t Templates) Render(w http.ResponseWriter, status int, name string, v *View) error {
	v.Page = strings.TrimSuffix(name, ".html")
	var b bytes.Buffer
	if err := t[name].Execute(&b, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails if the client has left
	return nil
}
