package sqlstore

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDSN(t *testing.T) {
	for dsn, want := range map[string]dataSource{
		"postgres://u:p@h/db?sslmode=disable":  {postgres: true, address: "postgres://u:p@h/db?sslmode=disable"},
		"postgresql:///db":                     {postgres: true, address: "postgresql:///db"},
		"PostgreSQL://h/db":                    {postgres: true, address: "postgresql://h/db"},
		"host=h user=u":                        {postgres: true, address: "host=h user=u"},
		" user = u":                            {postgres: true, address: " user = u"},
		"llm.db":                               {address: "file:llm.db"},
		"/var/lib/a b?c#d%e.db":                {address: "file:/var/lib/a b%3fc%23d%25e.db"},
		"./user=u.db":                          {address: "file:./user=u.db"},
		`c:\llm.db`:                            {address: `file:c:\llm.db`},
		"sqlite:llm.db":                        {address: "file:llm.db"},
		"sqlite:/llm.db":                       {address: "file:/llm.db"},
		":memory:":                             {address: "file::memory:", memory: true},
		"sqlite::memory:":                      {address: "file::memory:", memory: true},
		"file::memory:":                        {address: "file::memory:", memory: true},
		"file:x?mode=memory&cache=shared":      {address: "file:x", params: "mode=memory&cache=shared", memory: true},
		"file:x.db?_pragma=synchronous(1)":     {address: "file:x.db", params: "_pragma=synchronous(1)"},
		"file:///x.db?mode=ro&_pragma=a%3d1":   {address: "file:///x.db", params: "mode=ro&_pragma=a%3d1"},
		"file:/with%20space.db":                {address: "file:/with%20space.db"},
		"/home/password=secret host=elsewhere": {address: "file:/home/password=secret host=elsewhere"},
	} {
		got, err := parseDSN(dsn)
		assert.NoError(t, err, dsn)
		assert.Equal(t, want, got, dsn)
	}
}

func TestOpen_InvalidDSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                               "empty",
		"sqlite:":                        "empty",
		"sqlite://llm.db":                "got //",
		"mysql://u:hunter2@h/db":         "unknown scheme mysql",
		"localhost:5432/hunter2":         "unknown scheme: use",
		"postgres:u:hunter2@h":           "the scheme postgres must be followed by ://",
		"a\x00hunter2":                   "NUL",
		"file:x?%zz=hunter2":             "parameters",
		"postgres://u:hunter2@h:port/db": errMalformedDSN.Error(),
		"postgres://u:hunter2@h/db?connect_timeout=hunter2x": errMalformedDSN.Error(),
		"postgres://u:hunter2@h/db?sslmode=sometimes":        "sslmode is invalid",
		"postgres://u:hunter2@h/db?pool_max_conns=many":      "many",
		"postgres://u:hun/ter2@h/db":                         errMalformedDSN.Error(),
		"postgres://u:%zzhunter2@h/db":                       errMalformedDSN.Error(),
		"postgres://h/db?password=hunter2&sslmode=x":         "sslmode is invalid",
		"host=h password='hunter2":                           errMalformedDSN.Error(),
		"host=h password=hunter2 sslmode=sometimes":          errMalformedDSN.Error(),
		"host=h port=hunter2":                                errMalformedDSN.Error(),
		"postgres://u:hunter2@127.0.0.1:1/db":                "connection refused",
		"host=127.0.0.1 port=1 user=u password=hunter2":      "connection refused",
		filepath.Join(t.TempDir(), "no", "directory", "db"):  "opening the SQLite file: no such file or directory",
	} {
		s, err := Open(t.Context(), dsn, nil)
		assert.Nil(t, s)
		if assert.ErrorContains(t, err, want, dsn) {
			assert.NotContains(t, err.Error(), "hunter2", dsn)
			assert.True(t, strings.HasPrefix(err.Error(), "sqlstore: "), err.Error())
		}
	}
}

// The characters of a password may end the password part of a DSN. No error shows any
// part of such a password.
func TestOpen_ErrorHidesUnescapedPassword(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, password := range []string{"left@right", "left,right", "left:right", "12/right", "12?right", "12#right", "left right", "le@ft,ri@right",
		"left@right,left@right", "left%40right%2cright", "left/right@right", "12/left?right#right@right", "'left@right", "left\\right"} {
		for _, dsn := range []string{
			"postgres://u:%s@127.0.0.1:1/db", "postgres://u:%s@127.0.0.1:1,127.0.0.1:2/db", "postgres://:%s@127.0.0.1:1", "postgresql://u:%s@127.0.0.1:1/db?sslmode=disable",
			"postgres://127.0.0.1:1/db?password=%s", "postgres://127.0.0.1:1/db?user=u&password=%s&x=y", "host=127.0.0.1 port=1 password=%s", "host=127.0.0.1 port=1 user=u password='%s'",
			"password=%s host=127.0.0.1 port=1", "u:%s@127.0.0.1:1/db", "redis://u:%s@127.0.0.1:1", "%s@127.0.0.1", "file:%s@host/x", "sqlite:%s@host/x",
		} {
			dsn = strings.Replace(dsn, "%s", password, 1)
			s, err := Open(t.Context(), dsn, &Options{NoMigrate: true})
			assert.Nil(t, s, dsn)
			if assert.Error(t, err, dsn) {
				for _, part := range []string{"left", "right", "le@", "12/", "ri@"} {
					assert.NotContains(t, err.Error(), part, dsn)
				}
			}
		}
	}
}

func TestOpen_SpecialCharactersInPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "a b", "q?mode=memory", "h#x", "p%41", "key=value", "é", "x&y", "'q'"} {
		openStore(t, filepath.Join(dir, name), nil)
		assert.FileExists(t, filepath.Join(dir, name))
	}
	assert.NoFileExists(t, filepath.Join(dir, "pA"))
}

func TestOpen_SQLiteParameters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "llm.db")
	pragma := func(s *Store, name string) (value string) {
		require.NoError(t, s.db.write.QueryRow("PRAGMA "+name).Scan(&value))
		return value
	}
	s := openStore(t, path, nil)
	assert.Equal(t, "wal", pragma(s, "journal_mode"))
	assert.Equal(t, "2", pragma(s, "synchronous"))

	s = openStore(t, "file:"+path+"?_pragma=synchronous(1)", nil)
	assert.Equal(t, "1", pragma(s, "synchronous"), "the DSN takes precedence")

	missing := filepath.Join(t.TempDir(), "missing.db")
	_, err := Open(t.Context(), "file:"+missing+"?mode=rw", nil)
	assert.ErrorContains(t, err, "no such file")
	assert.NoFileExists(t, missing)
}
