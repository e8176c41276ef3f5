package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/tier"
)

// checkout is a workspace of two modules. The files of package m other than c.go are a knot.
var checkout = map[string]string{
	"go.work":                  "go 1.26.0\nuse (\n\t.\n\t./nested\n)\n",
	"go.mod":                   "module example.test/m\ngo 1.26.0\n",
	"a.go":                     "// Package m is measured.\npackage m\n\n/* of\ntwo lines */\ntype A struct {\n\tB // embedded\n\tC, d int\n}\n\nfunc (a *A) Get() int { return a.d + c }\n",
	"b.go":                     "package m\n\n// See \"Protocols\"\n// in the package documentation.\nconst N, n = 1, 2\n\ntype B interface{ Of(D) }\n",
	"d.go":                     "package m\n\ntype D []A\n\nvar _ E = (*A)(nil) // does not count\n",
	"c.go":                     "package m\n\nvar c = 1\n",
	"e.go":                     "package m\n\ntype E interface{ Get() int }\n\nvar _ B\n",
	"other_plan9.go":           "package m\n\nfunc Plan9() {}\n",
	"a_test.go":                "package m\n\nfunc Helper() {}\n",
	"internal/i/i.go":          "package i\n\nfunc I() {}\n",
	"nested/go.mod":            "module example.test/m/nested\ngo 1.26.0\n",
	"nested/n.go":              "package nested\n\nimport \"example.test/m/internal/i\"\n\nfunc N() { i.I() }\n",
	"nested/n_test.go":         "package nested\n\nimport _ \"example.test/m/internal/i\"\n",
	"nested/internal/own/o.go": "package own\n",
	"nested/o.go":              "package nested\n\nimport _ \"example.test/m/nested/internal/own\"\n",
	"nested/testdata/x.go":     "not Go\n",
}

func newCheckout(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range checkout {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func TestHouse(t *testing.T) {
	tier.Needs(t, "git")
	dir := newCheckout(t)
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.test"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	git("add", "a.go", "a_test.go", "go.mod", "nested/n.go")
	git("commit", "-q", "-m", "an endpoint")
	var out, log bytes.Buffer
	require.NoError(t, run([]string{"-dir", dir, "-commit", "HEAD", "work"}, &out, &log), "%s", &log)
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		// a uses b and c, b uses d, d uses a
		"example.test/m 6 34 19 5 6 5 3 2 4 0 3 23 0.3",
		"example.test/m/internal/i 1 3 2 0 1 1 0 0 0 0 1 3 -",
		"example.test/m/nested 2 8 5 0 1 1 0 0 0 0 1 5 0.1",
		". 34 3 0",
		"internal 3 0 0",
		"nested 9 3 1",
		"all 46 6 1",
		"Go files that are no tests: 2, of which in the root package: 1",
	} {
		assert.Contains(t, lines, want)
	}
	assert.Equal(t, []string{"a.go", "nested/n.go"}, lines[len(lines)-2:])
	assert.NotContains(t, out.String(), "a_test.go")
}

// A name is an author's if the comment of its declaration, or of the group of that, refers to a section for
// them.
func TestHouse_Names(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "", `package p

// A kind. See "Endpoints of hosts" in the
// package documentation.
const (
	A, B = 1, 2
	c = 3
)

type (
	// D is described. See "Protocols" in the package documentation.
	D int
	// See "Backends" in the package documentation.
	E int
)

// See "Protocols".
func F() {}

// See "Protocols" in the package documentation.
func (D) G() {}
`, parser.ParseComments)
	require.NoError(t, err)
	assert.Equal(t, []name{{"A", true}, {"B", true}, {"D", true}, {"E", false}, {"F", false}}, exportedNames(file))
	var out, log bytes.Buffer
	require.NoError(t, run([]string{"-dir", newCheckout(t), "-names", "work"}, &out, &log), "%s", &log)
	assert.Equal(t, []string{
		"example.test/m A host", "example.test/m N author", "example.test/m B host", "example.test/m D host", "example.test/m E host",
		"example.test/m Plan9 host", "example.test/m/internal/i I host", "example.test/m/nested N host",
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}

func TestHouse_MutualPairs(t *testing.T) {
	var s size
	s.countUses(map[string]map[string]bool{
		"a": {"b": true, "c": true}, "b": {"a": true}, "c": {"d": true}, "d": {"e": true}, "e": {"c": true},
	}, map[string]int{"a": 1, "b": 2, "c": 10, "d": 20, "e": 30, "f": 100})
	assert.Equal(t, size{references: 6, mutual: 1, knot: 3, knotLines: 60}, s)
}

func TestHouse_Mistakes(t *testing.T) {
	for _, args := range [][]string{{"-x"}, {"-dir", filepath.Join(t.TempDir(), "none")}, {"-dir", t.TempDir()}, {"-dir", newCheckout(t), "-commit", "none"}} {
		assert.Error(t, run(args, new(bytes.Buffer), new(bytes.Buffer)), "%q", args)
	}
}
