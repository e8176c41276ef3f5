package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/llmhttp/llmhttp/internal/tier"
)

// The tests leave nothing behind, and neither the settings of git of a user nor the owner of the
// checkout matter.
func TestMain(m *testing.M) {
	temp, err := os.MkdirTemp("", "release-test-")
	if err != nil {
		panic(err)
	}
	config := "[user]\nname = Test\nemail = test@example.test\n[safe]\ndirectory = *\n[init]\ndefaultBranch = main\n"
	if err := os.WriteFile(filepath.Join(temp, "gitconfig"), []byte(config), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(temp, "gitconfig"))
	os.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	code := m.Run()
	if err := os.RemoveAll(temp); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// runTool runs a subcommand on the checkout in dir, and checks that it leaves no temporary files and
// does not change the checkout. It returns what the subcommand prints, and its error.
func runTool(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	before := git(t, dir, "status", "--porcelain") + git(t, dir, "for-each-ref") + git(t, dir, "log", "-1")
	var out bytes.Buffer
	err := run(t.Context(), dir, args, &out, t.Output())
	after := git(t, dir, "status", "--porcelain") + git(t, dir, "for-each-ref") + git(t, dir, "log", "-1")
	assert.Equal(t, before, after, "the checkout")
	left, readErr := os.ReadDir(temp)
	require.NoError(t, readErr)
	assert.Empty(t, left, "temporary files")
	return out.String(), err
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %s\n%s", strings.Join(args, " "), out)
	return string(out)
}

// files is a repository with modules that require only each other: root, then store, then admin,
// which is first in go.work.
const files = `
-- go.work --
go 1.26.0

use (
	.
	./admin
	./bench
	./examples/hello
	./store
)
-- go.mod --
module github.com/llmhttp/llmhttp

go 1.26.0
-- LICENSE --
-- .gitignore --
/bin/
-- CHANGELOG.md --
# Changelog

## v0.2.0
-- README.md --
~~~go
package main

import (
	"io"
	"net/http"

	"github.com/llmhttp/llmhttp"
)

func main() {
	http.ListenAndServe("localhost:8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, llmhttp.Hello())
	}))
}
~~~

~~~sh
curl http://localhost:8080/v1/chat/completions
~~~
-- hello.go --
package llmhttp

import "github.com/llmhttp/llmhttp/internal/words"

// Hello returns a greeting.
func Hello() string { return words.Hello }
-- hello_test.go --
package llmhttp
-- example_test.go --
package llmhttp_test

import (
	"fmt"

	"github.com/llmhttp/llmhttp"
)

func Example() {
	fmt.Println(llmhttp.Hello())
	// Output: {"choices": []}
}
-- internal/words/words.go --
package words

const Hello = "{\"choices\": []}"
-- store/go.mod --
module github.com/llmhttp/llmhttp/store

go 1.26.0

require github.com/llmhttp/llmhttp v0.0.0

// Until the root has a release.
replace github.com/llmhttp/llmhttp => ..
-- store/store.go --
package store

import "github.com/llmhttp/llmhttp"

func Get() string { return llmhttp.Hello() }
-- store/store_test.go --
package store

import (
	"testing"

	"github.com/llmhttp/llmhttp/internal/words"
)

func TestGet(t *testing.T) {
	if Get() != words.Hello {
		t.Error(Get())
	}
}
-- admin/go.mod --
module github.com/llmhttp/llmhttp/admin

go 1.26.0

require github.com/llmhttp/llmhttp/store v0.0.0

require github.com/llmhttp/llmhttp v0.0.0 // indirect

// Until the root and the store have a release.
replace (
	github.com/llmhttp/llmhttp => ..
	github.com/llmhttp/llmhttp/store => ../store
)
-- admin/main.go --
package main

import (
	"flag"
	"fmt"

	"github.com/llmhttp/llmhttp/store"
)

func main() {
	flag.Parse()
	fmt.Println(store.Get())
}
-- bench/go.mod --
module github.com/llmhttp/llmhttp/bench

go 1.26.0

require github.com/llmhttp/llmhttp v0.0.0

replace github.com/llmhttp/llmhttp => ..
-- bench/main.go --
package main

import "github.com/llmhttp/llmhttp"

func main() { println(llmhttp.Hello()) }
-- examples/hello/go.mod --
module github.com/llmhttp/llmhttp/examples/hello

go 1.26.0
-- examples/hello/main.go --
package main

func main() {}
`

// newRepository makes a repository of files, with more files that replace or remove some.
func newRepository(t *testing.T, more string) string {
	t.Helper()
	tier.Needs(t, "git")
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	commit(t, dir, files+more)
	return dir
}

// commit writes files in the format of txtar into a repository. An empty Go file is removed.
func commit(t *testing.T, dir, text string) {
	t.Helper()
	for _, f := range txtar.Parse([]byte(strings.ReplaceAll(text, "~~~", "```"))).Files {
		name := filepath.Join(dir, f.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, f.Data, 0o644))
		if len(bytes.TrimSpace(f.Data)) == 0 && filepath.Ext(name) == ".go" {
			require.NoError(t, os.Remove(name))
		}
	}
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message=files")
}

func TestRelease(t *testing.T) {
	tier.Needs(t, "curl")
	dir := newRepository(t, "")
	remote := t.TempDir()
	git(t, remote, "init", "--quiet", "--bare")
	git(t, dir, "remote", "add", "origin", remote)
	out := filepath.Join(t.TempDir(), "out")

	printed, err := runTool(t, dir, "release", "-out", out, "v0.1.0-alpha.1")
	require.NoError(t, err)
	repository, proxy := filepath.Join(out, "repository.git"), filepath.Join(out, "proxy")
	assert.Equal(t, "export GOPROXY=file://"+proxy+",off GONOSUMDB=github.com/llmhttp/*\n"+
		"git -C "+repository+" push --atomic "+remote+" refs/tags/v0.1.0-alpha.1 refs/tags/store/v0.1.0-alpha.1 refs/tags/admin/v0.1.0-alpha.1\n", printed)

	assert.Equal(t, "admin/v0.1.0-alpha.1\nstore/v0.1.0-alpha.1\nv0.1.0-alpha.1\n", git(t, repository, "tag"))
	assert.Equal(t, "Release admin/v0.1.0-alpha.1\nRelease store/v0.1.0-alpha.1\nfiles\n", git(t, repository, "log", "--format=%s", "admin/v0.1.0-alpha.1"))
	assert.Equal(t, git(t, dir, "rev-parse", "HEAD"), git(t, repository, "rev-parse", "v0.1.0-alpha.1^{commit}"))
	assert.Equal(t, "admin/go.mod\nadmin/go.sum\n", git(t, repository, "show", "--format=", "--name-only", "admin/v0.1.0-alpha.1^{commit}"))
	assert.Equal(t, `module github.com/llmhttp/llmhttp/admin

go 1.26.0

require github.com/llmhttp/llmhttp/store v0.1.0-alpha.1

require github.com/llmhttp/llmhttp v0.1.0-alpha.1 // indirect
`, git(t, repository, "show", "admin/v0.1.0-alpha.1:admin/go.mod"))
	sums := git(t, repository, "show", "admin/v0.1.0-alpha.1:admin/go.sum")
	assert.Equal(t, 4, strings.Count(sums, "github.com/llmhttp/llmhttp"), sums)
	assert.ElementsMatch(t, []string{
		"llmhttp/@v/list", "llmhttp/@v/v0.1.0-alpha.1.info", "llmhttp/@v/v0.1.0-alpha.1.mod", "llmhttp/@v/v0.1.0-alpha.1.zip",
		"llmhttp/admin/@v/list", "llmhttp/admin/@v/v0.1.0-alpha.1.info", "llmhttp/admin/@v/v0.1.0-alpha.1.mod", "llmhttp/admin/@v/v0.1.0-alpha.1.zip",
		"llmhttp/store/@v/list", "llmhttp/store/@v/v0.1.0-alpha.1.info", "llmhttp/store/@v/v0.1.0-alpha.1.mod", "llmhttp/store/@v/v0.1.0-alpha.1.zip",
	}, listFiles(t, filepath.Join(proxy, "github.com", "llmhttp")))
	assert.Empty(t, git(t, remote, "tag"))

	_, err = runTool(t, dir, "release", "-push", "v0.1.0-alpha.1")
	require.NoError(t, err)
	assert.Equal(t, "admin/v0.1.0-alpha.1\nstore/v0.1.0-alpha.1\nv0.1.0-alpha.1\n", git(t, remote, "tag"))
	assert.DirExists(t, filepath.Join(dir, "bin", "release", "v0.1.0-alpha.1", "proxy"))
}

func listFiles(t *testing.T, dir string) (names []string) {
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// HEAD may be a commit that no branch has, and the changes of the tree do not matter.
func TestRelease_Head(t *testing.T) {
	dir := newRepository(t, "")
	git(t, dir, "checkout", "--quiet", "--detach")
	commit(t, dir, "-- CHANGELOG.md --\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hello.go"), []byte("not Go"), 0o644))
	out := filepath.Join(t.TempDir(), "out")
	_, err := runTool(t, dir, "release", "-head", "-out", out, "v0.1.0-alpha.1")
	require.NoError(t, err)
	assert.Equal(t, git(t, dir, "rev-parse", "HEAD"), git(t, filepath.Join(out, "repository.git"), "rev-parse", "v0.1.0-alpha.1^{commit}"))
}

func TestRelease_Refuses(t *testing.T) {
	tests := map[string]struct {
		more    string // files of the repository
		prepare func(t *testing.T, dir string)
		args    []string
		want    string
	}{
		"no version":       {args: []string{}, want: "needs one version"},
		"no semver":        {args: []string{"0.1.0"}, want: `"0.1.0" is not a version`},
		"not canonical":    {args: []string{"v0.1"}, want: `"v0.1" is not a version`},
		"build metadata":   {args: []string{"v0.1.0+x"}, want: `"v0.1.0+x" is not a version`},
		"another path":     {args: []string{"v2.0.0"}, want: `"v2.0.0" is not a version`},
		"no flag":          {args: []string{"-x", "v0.1.0"}, want: "-x"},
		"out exists":       {args: []string{"-out", ".", "v0.2.0"}, want: "exists"},
		"another branch":   {args: []string{"-branch", "next", "v0.2.0"}, want: `the branch "main" is checked out, want next`},
		"not in CHANGELOG": {args: []string{"v0.1.0"}, want: "CHANGELOG.md has no heading with v0.1.0"},
		"pre-release of a later version, not in CHANGELOG": {
			prepare: func(t *testing.T, dir string) { git(t, dir, "tag", "v0.2.0") },
			args:    []string{"v0.3.0-alpha.1"}, want: "CHANGELOG.md has no heading with v0.3.0-alpha.1",
		},
		"a part of a version in CHANGELOG": {more: "-- CHANGELOG.md --\n## v0.2.0-rc.1\n", args: []string{"v0.2.0"}, want: "CHANGELOG.md has no heading"},
		"changes": {
			prepare: func(t *testing.T, dir string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "new.go"), []byte("package llmhttp\n"), 0o644))
			},
			want: "new.go",
		},
		"a tag": {
			prepare: func(t *testing.T, dir string) { git(t, dir, "tag", "store/v0.2.0") },
			want:    "there is a tag store/v0.2.0 already",
		},
		"a module that is not released": {
			more: "-- store/go.mod --\nmodule github.com/llmhttp/llmhttp/store\nrequire github.com/llmhttp/llmhttp/bench v0.0.0\n",
			want: "store/go.mod requires github.com/llmhttp/llmhttp/bench, which is not released",
		},
		"a cycle": {
			more: "-- store/go.mod --\nmodule github.com/llmhttp/llmhttp/store\nrequire github.com/llmhttp/llmhttp/admin v0.0.0\n",
			want: "these modules require each other",
		},
		"another path of a module": {
			more: "-- store/go.mod --\nmodule github.com/llmhttp/llmhttp/shop\n",
			want: "store/go.mod: the path of the module is github.com/llmhttp/llmhttp/shop",
		},
		"replace of a foreign module": {
			more: "-- go.mod --\nmodule github.com/llmhttp/llmhttp\n\ngo 1.26.0\n\nreplace example.com/x => ./store\n",
			want: "replace of example.com/x",
		},
		"not tidy": {
			more: "-- store/store.go --\npackage store\n-- store/store_test.go --\n",
			want: "store/go.mod is not tidy",
		},
		"go vet": {
			more: "-- hello_test.go --\npackage llmhttp\n\nimport \"fmt\"\n\nvar _ = fmt.Sprintf(\"%d\", Hello())\n",
			want: "Sprintf format %d has arg",
		},
		"an example": {
			more: "-- internal/words/words.go --\npackage words\n\nconst Hello = \"{}\"\n",
			want: "FAIL: Example",
		},
		"the quickstart": {
			more: "-- internal/words/words.go --\npackage words\n\nconst Hello = \"{}\"\n-- example_test.go --\n",
			want: "the reply to a command of the quickstart has no choices",
		},
		"the program in README.md": {
			more: "-- README.md --\n",
			want: "README.md has no program",
		},
		"a command": {
			more: "-- admin/main.go --\npackage main\n\nimport (\n\t\"os\"\n\n\t_ \"github.com/llmhttp/llmhttp/store\"\n)\n\nfunc main() { os.Exit(3) }\n",
			want: "exit status 3",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newRepository(t, test.more)
			if test.prepare != nil {
				test.prepare(t, dir)
			}
			if test.args == nil {
				test.args = []string{"v0.2.0"}
			}
			printed, err := runTool(t, dir, append([]string{"release"}, test.args...)...)
			assert.ErrorContains(t, err, test.want)
			assert.Empty(t, printed)
			assert.NoDirExists(t, filepath.Join(dir, "bin"))
		})
	}
}

// All of this repository can be released as it is committed.
func TestRelease_ThisRepository(t *testing.T) {
	tier.Needs(t, "curl")
	_, file, _, _ := runtime.Caller(0)
	tree := filepath.Join(filepath.Dir(file), "..", "..")
	out := filepath.Join(t.TempDir(), "out")
	// A version that nobody will release. "make lint" runs go vet.
	_, err := runTool(t, tree, "release", "-head", "-vet=false", "-out", out, "v0.0.0-test")
	require.NoError(t, err)
	var modules []string
	for tag := range strings.FieldsSeq(git(t, filepath.Join(out, "repository.git"), "tag")) {
		modules = append(modules, strings.TrimSuffix(strings.TrimSuffix(tag, "v0.0.0-test"), "/"))
	}
	assert.ElementsMatch(t, []string{"", "sqlstore", "llmhttpctl", "redislimit", "otelllm", "console", "llmfake", "responsesws"}, modules)
}

const noWords = "-- hello.go --\npackage llmhttp\n\n// Hello returns a greeting.\nfunc Hello() string { return Word }\n\nconst Word = \"Hello\"\n-- internal/words/words.go --\n-- example_test.go --\n"

func TestCompat(t *testing.T) {
	tests := map[string]struct{ more, want string }{
		"the same":     {"-- CHANGELOG.md --\n", "ok    github.com/llmhttp/llmhttp/store\nok    github.com/llmhttp/llmhttp/admin\n"},
		"a new module": {"-- more/go.mod --\nmodule github.com/llmhttp/llmhttp/more\n-- more/more.go --\npackage more\n-- go.work --\ngo 1.26.0\nuse (\n\t.\n\t./more\n)\n", "ok    github.com/llmhttp/llmhttp/store\nok    github.com/llmhttp/llmhttp/admin\n"},
		"the tests import an internal package": {noWords,
			"FAIL  github.com/llmhttp/llmhttp/store: the tests do not compile\n"},
		"a test": {"-- hello.go --\npackage llmhttp\n\nfunc Hello() string { return \"Hi!\" }\n",
			"FAIL  github.com/llmhttp/llmhttp/store: the tests fail\n      --- FAIL: TestGet (0.00s)\n      FAIL\tgithub.com/llmhttp/llmhttp/store"},
		"the API": {"-- hello.go --\npackage llmhttp\n-- example_test.go --\n",
			"FAIL  github.com/llmhttp/llmhttp/store: it does not build\n      ./store.go:5:36: undefined: llmhttp.Hello\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := newRepository(t, "")
			commit(t, dir, test.more)
			git(t, dir, "tag", "v0.1.0", "HEAD~")
			printed, err := runTool(t, dir, "compat")
			assert.Contains(t, printed, test.want)
			if strings.Contains(test.want, "FAIL") && !strings.Contains(test.want, testsDoNotCompile) {
				assert.ErrorContains(t, err, "the root module of HEAD breaks store")
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

func TestCompat_BeforeTheFirstVersion(t *testing.T) {
	dir := newRepository(t, "")
	commit(t, dir, "-- hello.go --\npackage llmhttp\n-- example_test.go --\n")
	printed, err := runTool(t, dir, "compat", "HEAD~")
	assert.NoError(t, err)
	assert.Contains(t, printed, "FAIL  github.com/llmhttp/llmhttp/store: it does not build\n")
}

func TestCompare_NoBase(t *testing.T) {
	dir := newRepository(t, "")
	for _, command := range []string{"compat", "apidiff"} {
		printed, err := runTool(t, dir, command)
		assert.NoError(t, err)
		assert.Equal(t, "there is no version yet with which to compare; name a commit: scripts/"+command+".sh BASE\n", printed)
		_, err = runTool(t, dir, command, "v0.9.0")
		assert.ErrorContains(t, err, `there is no commit "v0.9.0"`)
	}
}

func TestAPIDiff(t *testing.T) {
	dir := newRepository(t, "")
	commit(t, dir, noWords+`
-- store/store.go --
package store
-- admin/main.go --
-- more/go.mod --
module github.com/llmhttp/llmhttp/more
-- more/more.go --
package more
-- go.work --
go 1.26.0

use (
	.
	./more
	./store
)
`)
	const want = `
github.com/llmhttp/llmhttp
Compatible changes:
- Word: added

github.com/llmhttp/llmhttp/admin
the module is gone

github.com/llmhttp/llmhttp/more
a new module

github.com/llmhttp/llmhttp/store
Incompatible changes:
- Get: removed

2 incompatible changes since `
	printed, err := runTool(t, dir, "apidiff", "HEAD~")
	assert.NoError(t, err)
	assert.Equal(t, want+"HEAD~\n", printed)

	git(t, dir, "tag", "v0.9.0", "HEAD~")
	printed, err = runTool(t, dir, "apidiff")
	assert.NoError(t, err)
	assert.Equal(t, want+"v0.9.0\n", printed)

	git(t, dir, "tag", "v1.0.0", "HEAD~")
	_, err = runTool(t, dir, "apidiff", "v1.0.0")
	assert.ErrorContains(t, err, "v1.0.0 promises compatibility")

	printed, err = runTool(t, dir, "apidiff", "HEAD")
	assert.NoError(t, err)
	assert.Contains(t, printed, "\ngithub.com/llmhttp/llmhttp/store\nno changes\n")
}
