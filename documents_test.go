package llmhttp_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documents returns the Markdown files of the repository.
func documents(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != "." && (name == "node_modules" || name == "testdata" || name[0] == '.') {
			return filepath.SkipDir
		}
		if filepath.Ext(file) == ".md" {
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	}))
	require.Greater(t, len(files), 20)
	return files
}

// A codeBlock is a block of code in a document.
type codeBlock struct {
	file     string
	line     int    // of the fence, from 1
	language string // empty if the block has none
	text     string
}

func (b codeBlock) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// codeBlocks returns the blocks of code in documents, in order.
func codeBlocks(t *testing.T, files ...string) (blocks []codeBlock) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllSubmatchIndex(text, -1) {
			blocks = append(blocks, codeBlock{
				file: file, line: 1 + strings.Count(string(text[:m[0]]), "\n"),
				language: string(text[m[2]:m[3]]), text: string(text[m[4]:m[5]]),
			})
		}
	}
	return blocks
}

// blockTexts returns the texts of blocks.
func blockTexts(blocks []codeBlock) (texts []string) {
	for _, b := range blocks {
		texts = append(texts, b.text)
	}
	return texts
}

var leadingTabs = regexp.MustCompile(`(?m)^\t+`)

// exampleFiles returns the code of all examples, whose tests compile and run it, without indentation.
var exampleFiles = sync.OnceValues(func() (codes []string, err error) {
	files, err := filepath.Glob("examples/*/*.go")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		codes = append(codes, leadingTabs.ReplaceAllString(string(code), ""))
	}
	return codes, nil
})

// isOfExamples reports whether the code is a part of an example. Indentation may differ.
func (b codeBlock) isOfExamples(t *testing.T) bool {
	t.Helper()
	examples, err := exampleFiles()
	require.NoError(t, err)
	code := leadingTabs.ReplaceAllString(b.text, "")
	return slices.ContainsFunc(examples, func(example string) bool { return strings.Contains(example, code) })
}

// Go code in a document is a part of an example, or compiles, together with that of all other
// documents: declarations need different names. Programs are the quickstart and the agent of
// docs/agents.md, which tests run.
func TestDocuments_GoCode(t *testing.T) {
	t.Parallel()
	const prelude = "func greet(ctx context.Context, name string) (string, error) { return name, nil }\n"
	var pieces []string
	ofExamples, programs := 0, 0
	for _, b := range codeBlocks(t, documents(t)...) {
		switch {
		case b.language != "go":
		case strings.HasPrefix(b.text, "package "):
			programs++
			assert.Contains(t, []string{"README.md", "docs/agents.md"}, b.file, "%s: which test runs it?", b)
		case b.isOfExamples(t):
			ofExamples++
		default:
			pieces = append(pieces, b.text)
		}
	}
	assert.Equal(t, 2, programs)
	assert.GreaterOrEqual(t, ofExamples, 4)
	assert.Greater(t, len(pieces), 15)
	vetDoc(t, prelude, pieces)
}

// commands are the blocks of commands in documents, by their first line: the test that runs them,
// or why none does.
var commands = map[string]string{
	"go get github.com/llmhttp/llmhttp":                                                  "not run: nothing is published yet; TestRelease_ThisRepository of scripts/release runs it",
	"git clone https://github.com/llmhttp/llmhttp ../llmhttp":                            "TestReadme_Quickstart",
	`curl -w '\n' http://localhost:8080/v1/chat/completions `:                            "TestReadme_Quickstart",
	`curl -N http://localhost:8080/v1/chat/completions `:                                 "TestReadme_Quickstart",
	"go run ./examples/inmemory -addr 127.0.0.1:8081 -key sk-first":                      "TestDocuments_Gateway",
	`curl -w '\n' http://127.0.0.1:8080/v1/chat/completions `:                            "TestDocuments_Gateway",
	"go build -o bin/ ./examples/production ./llmhttpctl":                                "TestProductionDocument",
	"KEY=$(bin/llmhttpctl keys create":                                                   "TestProductionDocument",
	"bin/llmhttpctl usage --account acme":                                                "TestProductionDocument",
	"go run ./examples/inmemory -console":                                                "not run: scripts/examples.sh runs the program, and the tests of console such a console",
	"cd llmfake/cmd/llmfake/testdata/python":                                             "TestPythonExample",
	"npm install --no-save --prefix clients/node/llmfake/example":                        "not run: clients/node/llmfake/sdk.test.js runs the second line with the installed packages",
	"go install ./llmfake/cmd/llmfake":                                                   "not run: it writes into GOBIN",
	"go install ./llmhttpctl":                                                            "not run: it writes into GOBIN",
	"export LLMHTTP_DSN=llm.db":                                                          "TestCommandsOfReadme", // of llmhttpctl
	"cd clients/go && go test ./...":                                                     "not run: make test runs them",
	"go build -o bin/ ./examples/inmemory ./examples/gateway ./clients/behind":           "not run: make test runs them",
	"npm install --prefix /tmp/agents":                                                   "not run: the agents take 1.5 GB",
	"export ANTHROPIC_BASE_URL=http://localhost:8080 ANTHROPIC_AUTH_TOKEN=sk-demo":       "not run: Claude Code takes 400 MB; clients/node/agents/programs.js sets the same variables",
	"export COPILOT_PROVIDER_BASE_URL=http://localhost:8080/v1 COPILOT_PROVIDER_API_KEY": "not run: Copilot takes 300 MB; clients/node/agents/programs.js sets the same variables",
	"npm install react@19 react-dom@19 @assistant-ui/react":                              "not run: TestAgentsDocument of clients/browser runs the second line with the installed packages",
	"MODEL_URL=https://models.example.com/v1 MODEL_KEY=sk-... MODEL=large go run .":      "not run: TestAgentsDocument of clients/browser sets the same variables",
}

// Each block of commands in a document is run by a test, or is listed with the reason why not.
func TestDocuments_Commands(t *testing.T) {
	t.Parallel()
	tree := readSourceTree(t)
	found := make(map[string]bool)
	for _, b := range codeBlocks(t, documents(t)...) {
		switch b.language {
		case "go", "toml", "python", "html", "jsx", "":
		case "json":
			assert.True(t, json.Valid([]byte(b.text)), b)
		case "sh":
			listed := false
			for first := range commands {
				if strings.HasPrefix(b.text, first) {
					found[first], listed = true, true
				}
			}
			assert.True(t, listed, "%s: which test runs it? See commands.", b)
		default:
			assert.Fail(t, "unknown language", b)
		}
	}
	for first, test := range commands {
		assert.True(t, found[first], "no document has it: %s", first)
		assert.True(t, strings.HasPrefix(test, "not run: ") || tree.names[test], "no such test: %s", test)
	}
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	heading = regexp.MustCompile("(?m)^#+ (.*)$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// anchors returns the anchors of the headings of a document, as GitHub makes them.
func anchors(text string) (anchors []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// Links in documents to files, directories and headings have a target, and the index has each
// document of its directory.
func TestDocuments_Links(t *testing.T) {
	t.Parallel()
	texts := make(map[string]string)
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[file] = string(text)
	}
	linked := make(map[string]bool)
	for file, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, anchor, hasAnchor := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if target = filepath.ToSlash(filepath.Join(filepath.Dir(file), target)); strings.HasPrefix(m[1], "#") {
				target = file
			}
			_, err := os.Stat(target)
			if !assert.NoError(t, err, "%s: %s", file, m[1]) {
				continue
			}
			if hasAnchor {
				assert.Contains(t, anchors(texts[target]), anchor, "%s: %s", file, m[1])
			}
			if file == "docs/README.md" {
				linked[target] = true
			}
		}
	}
	for file := range texts {
		if filepath.Dir(file) == "docs" && file != "docs/README.md" {
			assert.True(t, linked[file], "docs/README.md does not have %s", file)
		}
	}
}

// clients/README.md has each client of the tests with its version.
func TestDocuments_ClientVersions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("clients/README.md")
	require.NoError(t, err)
	npm, err := os.ReadFile("clients/node/package.json")
	require.NoError(t, err)
	var pkg struct {
		Dependencies    map[string]string
		DevDependencies map[string]string
	}
	require.NoError(t, json.Unmarshal(npm, &pkg))
	versions := pkg.Dependencies
	for name, version := range pkg.DevDependencies {
		versions[name] = version
	}
	gomod, err := os.ReadFile("clients/go.mod")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`).FindAllStringSubmatch(string(gomod), -1) {
		versions[m[1]] = m[2]
	}
	for name, version := range versions {
		if slices.Contains([]string{"node", "zod", "axe-core", "@langchain/core", "@llamaindex/core", "@llamaindex/env",
			"esbuild", "react", "react-dom", "github.com/chromedp/chromedp", "github.com/stretchr/testify", "go.yaml.in/yaml/v3"}, name) || strings.HasPrefix(name, "github.com/llmhttp/") {
			continue // helpers of the tests
		}
		version = version[strings.LastIndex(version, "@")+1:] // of npm:NAME@VERSION
		assert.True(t, strings.Contains(string(text), version), "%s %s", name, version)
	}
}
