package sqlstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDSN(t *testing.T) {
	for dsn, want := range map[string]source{
		"postgres://u:p@h/db?sslmode=disable":  {postgres: true, name: "postgres://u:p@h/db?sslmode=disable"},
		"postgresql:///db":                     {postgres: true, name: "postgresql:///db"},
		"PostgreSQL://h/db":                    {postgres: true, name: "postgresql://h/db"},
		"host=h user=u":                        {postgres: true, name: "host=h user=u"},
		" user = u":                            {postgres: true, name: " user = u"},
		"llm.db":                               {name: "file:llm.db"},
		"/var/lib/a b?c#d%e.db":                {name: "file:/var/lib/a b%3fc%23d%25e.db"},
		"./user=u.db":                          {name: "file:./user=u.db"},
		`c:\llm.db`:                            {name: `file:c:\llm.db`},
		"sqlite:llm.db":                        {name: "file:llm.db"},
		"sqlite:/llm.db":                       {name: "file:/llm.db"},
		":memory:":                             {name: "file::memory:", memory: true},
		"sqlite::memory:":                      {name: "file::memory:", memory: true},
		"file::memory:":                        {name: "file::memory:", memory: true},
		"file:x?mode=memory&cache=shared":      {name: "file:x", params: "mode=memory&cache=shared", memory: true},
		"file:x.db?_pragma=synchronous(1)":     {name: "file:x.db", params: "_pragma=synchronous(1)"},
		"file:///x.db?mode=ro&_pragma=a%3d1":   {name: "file:///x.db", params: "mode=ro&_pragma=a%3d1"},
		"file:/with%20space.db":                {name: "file:/with%20space.db"},
		"/home/password=secret host=elsewhere": {name: "file:/home/password=secret host=elsewhere"},
	} {
		got, err := parseDSN(dsn)
		assert.NoError(t, err, dsn)
		assert.Equal(t, want, got, dsn)
	}
}

func TestBadDSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                               "empty",
		"sqlite:":                        "empty",
		"sqlite://llm.db":                "no //",
		"mysql://u:hunter2@h/db":         "mysql",
		"localhost:5432/hunter2":         "localhost",
		"postgres:u:hunter2@h":           "not followed by //",
		"a\x00hunter2":                   "NUL",
		"file:x?%zz=hunter2":             "parameters",
		"postgres://u:hunter2@h:port/db": "cannot be parsed",
		"postgres://u:hunter2@h/db?connect_timeout=hunter2x": "cannot be parsed",
		"postgres://u:hunter2@h/db?sslmode=sometimes":        "sslmode is invalid",
		"postgres://u:hunter2@h/db?pool_max_conns=many":      "many",
		"postgres://u:hun/ter2@h/db":                         "cannot be parsed",
		"postgres://u:%zzhunter2@h/db":                       "cannot be parsed",
		"postgres://h/db?password=hunter2&sslmode=x":         "sslmode is invalid",
		"host=h password='hunter2":                           "cannot be parsed",
		"host=h password=hunter2 sslmode=sometimes":          "cannot be parsed",
		"host=h port=hunter2":                                "cannot be parsed",
		"postgres://u:hunter2@127.0.0.1:1/db":                "connection refused",
		"host=127.0.0.1 port=1 user=u password=hunter2":      "connection refused",
		filepath.Join(t.TempDir(), "no", "hunter3", "db"):    "unable to open",
	} {
		s, err := Open(t.Context(), dsn, nil)
		if assert.ErrorContains(t, err, want, dsn) {
			assert.NotContains(t, err.Error(), "hunter2", dsn)
			assert.True(t, strings.HasPrefix(err.Error(), "sqlstore: "), err.Error())
		}
		assert.Nil(t, s)
	}
}

func TestBadOptions(t *testing.T) {
	for _, prefix := range []string{"sk ", "clé", strings.Repeat("x", 33), "\x00"} {
		_, err := Open(t.Context(), ":memory:", &Options{SecretPrefix: prefix})
		assert.ErrorContains(t, err, "SecretPrefix")
	}
}

// A password is in no error, whatever is wrong with the rest.
func FuzzDSNPassword(f *testing.F) {
	for _, password := range []string{"hunter2!", "p@ss:word", "sla/sh?query", "per%cent", `quo'te`, "sp ace", "#fragment", "[::1]:x@", "x@h:99999/"} {
		for _, rest := range []string{"@h/db", "@h:x/db", "@h/db?sslmode=x", "' port=x", " port=x", "@h:70000/db", "@/db?host=%zz"} {
			f.Add(password, rest)
		}
	}
	f.Fuzz(func(t *testing.T, password, rest string) {
		if len(password) < 6 {
			t.Skip()
		}
		for _, start := range []string{"postgres://u:", "host=h password=", "host=h password='", "postgres://h/db?password=", "mysql://u:"} {
			d, err := parseDSN(start + password + rest)
			if err == nil && d.postgres {
				_, err = parsePostgres(d.name)
			}
			if err == nil {
				continue
			}
			// What the rest says may be told, and so may what is always said.
			told := rest + unclearDSN + "sslmode is invalid failed to configure TLS"
			if strings.Contains(err.Error(), password) && !strings.Contains(told, password) {
				t.Errorf("%q: %v", start+password+rest, err)
			}
		}
	})
}

// A path is that of a file, whatever characters it has.
func TestOddPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "a b", "q?mode=memory", "h#x", "p%41", "key=value", "é", "x&y", "'q'"} {
		path := filepath.Join(dir, name)
		openStore(t, path, nil)
		_, err := os.Stat(path)
		require.NoError(t, err)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		assert.NotEqual(t, "pA", e.Name())
	}
}

// What a DSN asks for has the last word.
func TestSQLiteParameters(t *testing.T) {
	path := "file:" + filepath.Join(t.TempDir(), "llm.db")
	s := openStore(t, path, nil)
	full := count(t, s, "PRAGMA synchronous")
	var mode string
	require.NoError(t, s.write.QueryRow("PRAGMA journal_mode").Scan(&mode))
	assert.Equal(t, "wal", mode)
	assert.EqualValues(t, 2, full)

	s = openStore(t, path+"?_pragma=synchronous(1)", nil)
	var sync int
	require.NoError(t, s.write.QueryRow("PRAGMA synchronous").Scan(&sync))
	assert.Equal(t, 1, sync)

	_, err := Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "none.db")+"?mode=rw", nil)
	assert.ErrorContains(t, err, "unable to open", "mode=rw creates no file")
}
