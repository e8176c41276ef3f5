package sqlstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/manage"
)

// Only the owner of a SQLite file can read it and the files beside it. The mode of an
// existing file does not change.
func TestOpen_FileMode(t *testing.T) {
	dir := t.TempDir()
	modes := func(base string) (modes []string) {
		names, err := filepath.Glob(filepath.Join(dir, base+"*"))
		require.NoError(t, err)
		for _, name := range names {
			info, err := os.Stat(name)
			require.NoError(t, err)
			modes = append(modes, info.Mode().String())
		}
		return modes
	}
	for base, dsn := range map[string]string{
		"a": "DIR/a%20 ?.db", "b": "sqlite:DIR/b#.db", "c": "file:DIR/c%20.db", "d": "file:DIR/d.db?mode=rwc", "e": "file://DIR/e.db",
	} {
		dsn = strings.Replace(dsn, "DIR", dir, 1)
		s := openStore(t, dsn, nil)
		createKey(t, s, manage.KeyParams{})
		assert.Equal(t, []string{"-rw-------", "-rw-------", "-rw-------"}, modes(base), "%s", dsn)
	}
	name := filepath.Join(dir, "x.db")
	require.NoError(t, os.WriteFile(name, nil, 0o640))
	openStore(t, name, nil)
	assert.Equal(t, "-rw-r-----", modes("x")[0])

	for _, mode := range []string{"ro", "rw"} {
		_, err := Open(t.Context(), "file:"+filepath.Join(dir, "y.db")+"?mode="+mode, nil)
		assert.EqualError(t, err, "sqlstore: opening the SQLite file: no such file or directory")
	}
}
