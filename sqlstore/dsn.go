package sqlstore

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// A source is what a DSN names.
type source struct {
	postgres bool
	name     string // of PostgreSQL, the DSN itself; of SQLite, its URI without parameters
	params   string // of SQLite
	memory   bool   // SQLite in memory
}

var (
	schemePattern  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+):`) // longer than a drive
	keywordPattern = regexp.MustCompile(`^\s*[a-z_]+\s*=`)
)

// parseDSN tells databases apart. Its errors hold nothing of dsn but its
// scheme: the rest may be a password.
func parseDSN(dsn string) (source, error) {
	scheme := ""
	if m := schemePattern.FindStringSubmatch(dsn); m != nil {
		scheme = m[1]
	}
	rest := strings.TrimPrefix(dsn, scheme+":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		if !strings.HasPrefix(rest, "//") {
			return source{}, fmt.Errorf("DSN: %s: is not followed by //", scheme)
		}
		return source{postgres: true, name: strings.ToLower(scheme) + ":" + rest}, nil
	case "file":
		path, params, _ := strings.Cut(rest, "?")
		values, err := url.ParseQuery(params)
		if err != nil {
			return source{}, errors.New("DSN: the parameters of the file cannot be parsed")
		}
		memory := path == "" || path == ":memory:" || values.Get("mode") == "memory" || values.Get("vfs") == "memdb"
		return source{name: "file:" + path, params: params, memory: memory}, nil
	case "sqlite":
		if strings.HasPrefix(rest, "//") {
			return source{}, errors.New("DSN: a path is expected after sqlite:, and no //")
		}
		return sqliteFile(rest)
	case "":
		if keywordPattern.MatchString(dsn) {
			return source{postgres: true, name: dsn}, nil
		}
		return sqliteFile(dsn)
	}
	return source{}, fmt.Errorf("DSN: no database is known by %s: use postgres://..., host=..., sqlite:... or a path", scheme)
}

// sqliteFile returns the database at path, whatever characters that has.
func sqliteFile(path string) (source, error) {
	if path == "" {
		return source{}, errors.New("DSN: it is empty")
	}
	if strings.ContainsRune(path, 0) {
		return source{}, errors.New("DSN: the path has a NUL byte")
	}
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return source{name: "file:" + escaped, memory: path == ":memory:"}, nil
}
