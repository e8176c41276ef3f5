package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keytext"
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

func (p *page) render(name, title string, data any) {
	p.renderStatus(http.StatusOK, name, title, data)
}

func (p *page) renderStatus(status int, name, title string, data any) {
	p.h.render(p.w, p.r, &p.user, status, name, title, data)
}

// render replies with a page. The user is nil if nobody is signed in.
func (h *Handler) render(w http.ResponseWriter, r *http.Request, user *User, status int, name, title string, data any) {
	v := &view{Path: h.opts.Path, Page: strings.TrimSuffix(name, ".html"), Title: title, User: user, Data: data}
	if user != nil {
		v.SignOut = h.signIn != nil && user.session != ""
		v.Nav = h.nav(r, user)
	}
	var b bytes.Buffer
	if err := pages[name].Execute(&b, v); err != nil {
		h.opts.Logger.ErrorContext(r.Context(), "console: page not rendered", "page", name, "error", err)
		http.Error(w, "The page could not be rendered.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
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

// staticFiles are the embedded files by name.
var staticFiles = readStatic()

type staticFile struct {
	content     []byte
	contentType string
	etag        string
}

func readStatic() map[string]staticFile {
	entries, err := files.ReadDir("static")
	if err != nil {
		panic(err)
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	read := make(map[string]staticFile)
	for _, e := range entries {
		content, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		read[e.Name()] = staticFile{content, types[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return read
}

// staticPath returns the path of a file below that of the console. The query
// changes with the content, so that browsers need not ask again.
func staticPath(name string) string {
	return "static/" + name + "?v=" + strings.Trim(staticFiles[name].etag, `"`)
}

func serveStatic(w http.ResponseWriter, r *http.Request) {
	file, ok := staticFiles[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", file.contentType)
	w.Header().Set("ETag", file.etag)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content)) // replies 304 if the ETag matches
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func formatDate(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// formatAgo returns how long ago t was, or will be, in the largest unit.
func formatAgo(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	d = max(d, -d)
	format := "%s ago"
	if t.After(time.Now()) {
		format = "in %s"
	}
	const day = 24 * time.Hour
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"year", 365 * day}, {"month", 30 * day}, {"day", day}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := int64(d / unit.length); n > 0 {
			return fmt.Sprintf(format, plural(n, unit.name))
		}
	}
	return "now"
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return formatCount(n) + " " + noun + "s"
}

// formatCount separates the digits of n into groups of three with a narrow
// no-break space.
func formatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}

func formatMoney(dollars float64) string {
	if dollars != 0 && math.Abs(dollars) < 1 {
		return "$" + strconv.FormatFloat(dollars, 'f', 4, 64)
	}
	return "$" + strconv.FormatFloat(dollars, 'f', 2, 64)
}

func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return d.Round(time.Second).String()
}

func formatPercent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// formatAny is keytext.FormatList for the lists of a key.
func formatAny(list any) string {
	switch list := list.(type) {
	case []llmhttp.Endpoint:
		return keytext.FormatList(list)
	case []string:
		return keytext.FormatList(list)
	}
	return ""
}
