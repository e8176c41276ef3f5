package console_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Static files have an ETag, by which browsers ask whether they have changed. A page
// names them by their content.
func TestStatic(t *testing.T) {
	v := newHost(t, nil).newVisitor(t)
	page := v.get("sign-in").body
	for name, contentType := range map[string]string{
		"console.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		path := regexp.MustCompile(`/console/(static/` + regexp.QuoteMeta(name) + `\?v=\w+)"`).FindStringSubmatch(page)
		require.NotNil(t, path, name)
		v.header = http.Header{}
		r := v.get(path[1])
		assert.Equal(t, http.StatusOK, r.status)
		assert.NotEmpty(t, r.body)
		assert.Equal(t, contentType, r.header.Get("Content-Type"))
		require.NotEmpty(t, r.header.Get("ETag"))
		v.header = http.Header{"If-None-Match": {r.header.Get("ETag")}}
		again := v.get(path[1])
		assert.Equal(t, http.StatusNotModified, again.status)
		assert.Empty(t, again.body)
		v.header = http.Header{"If-None-Match": {`"other"`}}
		assert.Equal(t, http.StatusOK, v.get(path[1]).status)
	}
	for _, path := range []string{"static/", "static/nothing.js", "static/..%2ftemplates%2fkey.html"} {
		assert.Equal(t, http.StatusNotFound, v.get(path).status, path)
	}
}
