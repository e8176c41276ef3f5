package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

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
	byName := make(map[string]staticFile)
	for _, e := range entries {
		content, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		byName[e.Name()] = staticFile{content, types[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return byName
}

// staticPath returns the path of a file, relative to the path of the console. Its
// query changes with the content, so that browsers may cache the file.
func staticPath(name string) string {
	return "static/" + name + "?v=" + strings.Trim(staticFiles[name].etag, `"`)
}

// ServeStatic replies with an embedded file.
func ServeStatic(w http.ResponseWriter, r *http.Request) {
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
