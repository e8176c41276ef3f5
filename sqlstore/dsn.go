// The forms of a DSN.

package sqlstore

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A dataSource is a parsed DSN.
type dataSource struct {
	postgres bool
	address  string // PostgreSQL: the whole DSN; SQLite: a file URI without parameters
	params   string // SQLite: the parameters of the URI
	memory   bool   // SQLite: the database is in memory
}

var (
	// A scheme has at least two characters, unlike a Windows drive letter.
	schemePattern  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+):`)
	keywordPattern = regexp.MustCompile(`^\s*[a-z_]+\s*=`)
)

// parseDSN parses dsn. Its errors contain no part of dsn except the scheme,
// because any other part may be a password.
func parseDSN(dsn string) (dataSource, error) {
	scheme := ""
	if m := schemePattern.FindStringSubmatch(dsn); m != nil {
		scheme = m[1]
	}
	rest := strings.TrimPrefix(dsn, scheme+":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		if !strings.HasPrefix(rest, "//") {
			return dataSource{}, fmt.Errorf("DSN: the scheme %s must be followed by ://", scheme)
		}
		return dataSource{postgres: true, address: strings.ToLower(scheme) + ":" + rest}, nil
	case "file":
		return parseFileURI(rest)
	case "sqlite":
		if strings.HasPrefix(rest, "//") {
			return dataSource{}, errors.New("DSN: expected a path after sqlite:, got //")
		}
		return sqliteFile(rest)
	case "":
		if keywordPattern.MatchString(dsn) {
			return dataSource{postgres: true, address: dsn}, nil
		}
		return sqliteFile(dsn)
	}
	if strings.HasPrefix(rest, "//") {
		scheme = " " + scheme
	} else {
		scheme = "" // it may be the beginning of a password
	}
	return dataSource{}, fmt.Errorf("DSN: unknown scheme%s: use postgres://..., host=..., sqlite:... or a path", scheme)
}

// parseFileURI parses a SQLite URI without its scheme.
func parseFileURI(rest string) (dataSource, error) {
	path, params, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(params)
	if err != nil {
		return dataSource{}, errors.New("DSN: the parameters after file: are malformed")
	}
	memory := path == "" || path == ":memory:" || values.Get("mode") == "memory" || values.Get("vfs") == "memdb"
	return dataSource{address: "file:" + path, params: params, memory: memory}, nil
}

// sqliteFile returns the SQLite database at path, or in memory if path is
// ":memory:". It escapes the characters that have a meaning in a URI.
func sqliteFile(path string) (dataSource, error) {
	if path == "" {
		return dataSource{}, errors.New("DSN: the path is empty")
	}
	if strings.ContainsRune(path, 0) {
		return dataSource{}, errors.New("DSN: the path contains a NUL byte")
	}
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return dataSource{address: "file:" + escaped, memory: path == ":memory:"}, nil
}

var errMalformedDSN = errors.New(
	"DSN: expected postgres://user:password@host:port/database?sslmode=... or host=... user=... password=..., with special characters escaped",
)

// isUnambiguous reports whether dsn has no @, or a single one that ends the
// password of a URL. Otherwise a part of the password may become a host or a
// database, which later errors show.
func isUnambiguous(dsn string) bool {
	_, rest, isURL := strings.Cut(dsn, "://")
	if !isURL || keywordPattern.MatchString(dsn) {
		return true
	}
	at, end := strings.IndexByte(rest, '@'), strings.IndexAny(rest, "/?#")
	return !strings.Contains(rest, "#") && at == strings.LastIndexByte(rest, '@') && (at < 0 || end < 0 || at < end)
}

// redactDSNError returns the cause of err, the error of parsing dsn, or
// errMalformedDSN if the cause may contain a part of the password.
func redactDSNError(dsn string, err error) error {
	u, urlErr := url.Parse(dsn)
	cause := errors.Unwrap(err)
	if urlErr != nil || u.Host == "" || u.Fragment != "" || cause == nil || strings.Contains(u.Host+u.Path+u.RawQuery, "@") {
		return errMalformedDSN // part of the password may be somewhere else in the URL
	}
	secrets := slices.Concat(u.Query()["password"], u.Query()["sslpassword"])
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(cause.Error(), s) }) {
		return errMalformedDSN
	}
	return fmt.Errorf("DSN: %w", cause)
}
