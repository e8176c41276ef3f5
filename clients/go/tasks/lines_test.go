package tasks

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write docs/llmfake-compared.md")

// A fakeTB is a test whose errors are kept and do not fail it.
type fakeTB struct {
	testing.TB

	mu     sync.Mutex // guards errors
	errors string
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors += fmt.Sprintf(format, args...) + "\n"
}

var tasks = []string{
	"A text is the reply",
	"A stream has pauses, and pieces arrive when they are sent",
	"The model calls a tool, and answers when it has the result",
	"Structured output, from a struct of the language",
	"A 429 with Retry-After, then success",
	"A stream breaks off, and the text before it arrives",
	"Check the model, the messages and the key that were sent",
	"A request without a reply and a reply without a request fail the test",
	"Record a real server and replay it",
	"The same for another vendor's SDK",
}

// A count is the number of lines of the tests of a file, and of what they share.
type count struct {
	tasks  map[string]int
	shared int
}

// countGo counts the lines of the tests and of the other declarations of a file.
func countGo(t *testing.T, file, prefix string) count {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, 0)
	require.NoError(t, err)
	c := count{tasks: map[string]int{}}
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(string(source), "\n")
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		n := 0
		for _, line := range lines[fset.Position(d.Pos()).Line-1 : fset.Position(d.End()).Line] {
			if s := strings.TrimSpace(line); s != "" && !strings.HasPrefix(s, "//") {
				n++
			}
		}
		if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, prefix) {
			c.tasks[strings.TrimPrefix(fn.Name.Name, prefix)] = n
		} else {
			c.shared += n
		}
	}
	return c
}

var jsTask = regexp.MustCompile(`(?ms)^test\("(\d+)".*?^\}\);$`)

// countJS is countGo for a test file in JavaScript.
func countJS(t *testing.T, file string) count {
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	c := count{tasks: map[string]int{}}
	countLines := func(s string) (n int) {
		for line := range strings.Lines(s) {
			if s := strings.TrimSpace(line); s != "" && !strings.HasPrefix(s, "//") && !strings.HasPrefix(s, "/**") && !strings.HasPrefix(s, "import ") {
				n++
			}
		}
		return n
	}
	for _, m := range jsTask.FindAllStringSubmatch(string(source), -1) {
		c.tasks[m[1]] = countLines(m[0])
	}
	c.shared = countLines(jsTask.ReplaceAllString(string(source), ""))
	return c
}

// TestLines compares the lines of the tests with docs/llmfake-compared.md. With -write it writes
// the document.
func TestLines(t *testing.T) {
	tools := []struct {
		name string
		count
	}{
		{"llmfake", countGo(t, "llmfake_test.go", "TestLlmfake_")},
		{"aimock", countJS(t, filepath.Join("..", "..", "node", "tasks", "aimock.test.js"))},
		{"go-vcr", countGo(t, "govcr_test.go", "TestGovcr_")},
		{"httptest", countGo(t, "httptest_test.go", "TestHttptest_")},
	}
	var b strings.Builder
	b.WriteString(comparedHead)
	total := make([]int, len(tools))
	for i, task := range tasks {
		fmt.Fprintf(&b, "| %d. %s", i+1, task)
		for j, tool := range tools {
			n := tool.tasks[fmt.Sprint(i+1)]
			total[j] += n
			if n == 0 {
				b.WriteString(" | –")
			} else {
				fmt.Fprintf(&b, " | %d", n)
			}
		}
		b.WriteString(" |\n")
	}
	b.WriteString("| Functions that the tests share")
	for j, tool := range tools {
		total[j] += tool.shared
		fmt.Fprintf(&b, " | %d", tool.shared)
	}
	b.WriteString(" |\n| Together")
	for _, n := range total {
		fmt.Fprintf(&b, " | %d", n)
	}
	b.WriteString(" |\n" + comparedNotes)
	file := filepath.Join("..", "..", "..", "docs", "llmfake-compared.md")
	if *write {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "run: go test ./tasks -run TestLines -write")
}

const comparedHead = `# Ten tasks of a tester

The same program is tested with [llmfake](../llmfake), with [aimock](https://github.com/CopilotKit/aimock) 1.43.0, with
[go-vcr](https://github.com/dnaeon/go-vcr) v4.0.7 and with net/http/httptest alone. The numbers are lines of code without comments and
imports. The files run with the other tests: [clients/go/tasks](../clients/go/tasks) and [clients/node/tasks](../clients/node/tasks).
` + "`go test ./tasks -run TestLines -write`" + ` in clients/go writes this page, and without ` + "`-write`" + ` compares it.

| Task | llmfake | aimock | go-vcr | httptest |
|---|---|---|---|---|
`

const comparedNotes = `
A dash is a task that the tool has no means for.

- 1, 7, 10: aimock and llmfake serve the formats of several vendors. go-vcr and httptest send what the test has in JSON, which nobody checks.
  llmfake refuses requests that the vendor would refuse, with the vendor's error.
- 2: llmfake's Server works in a bubble of testing/synctest, so the test takes no time and its times are exact. aimock waits in real time; its
  test checks that the pauses are at least as long as they should be. The test with httptest needs channels. A cassette of go-vcr has the duration of a
  reply and not those of its pieces.
- 3, 8: llmfake's replies in a queue must all be asked for, and its failures say what came and what was expected. aimock answers an
  unmatched request with an error, and the test must look into its journal to notice that a reply was not asked for.
- 5: with aimock and httptest the test waits for a second. go-vcr's cassette asks for a millisecond.
- 6: a body of go-vcr cannot break off.
- 9: llmfake writes neither keys nor host names. aimock writes fixtures of its own format. With go-vcr, the test removes headers in a hook. With
  httptest, one writes a proxy and a format.
`
