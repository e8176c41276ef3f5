package llmhttp_test

import (
	"fmt"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readmeBlocks returns the blocks of code in README.md that are marked with a language.
func readmeBlocks(t *testing.T, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	require.NotEmpty(t, blocks)
	return blocks
}

// goCommand runs a command of the go tool, with the race detector if the test has it,
// so that the build cache has most packages.
func goCommand(t *testing.T, command string, args ...string) {
	t.Helper()
	if raceEnabled {
		args = append([]string{"-race"}, args...)
	}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{command}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// docImports are the packages that code in documentation may use without an import.
var docImports = []string{
	"context", "database/sql", "errors", "iter", "log", "log/slog", "net/http", "os", "os/signal", "strings", "syscall", "testing", "time",
	"github.com/llmhttp/llmhttp", "github.com/llmhttp/llmhttp/llm", "github.com/llmhttp/llmhttp/llm/join", "github.com/llmhttp/llmhttp/console", "github.com/llmhttp/llmhttp/keycache", "github.com/llmhttp/llmhttp/llmfake", "github.com/llmhttp/llmhttp/llmhttptest",
	"github.com/llmhttp/llmhttp/manage",
	"github.com/llmhttp/llmhttp/memory", "github.com/llmhttp/llmhttp/pricing", "github.com/llmhttp/llmhttp/responses", "github.com/llmhttp/llmhttp/responsestore",
	"github.com/llmhttp/llmhttp/route", "github.com/llmhttp/llmhttp/upstream", "github.com/llmhttp/llmhttp/usagebuffer", "github.com/llmhttp/llmhttp/quotawatch", "github.com/stretchr/testify/require",
}

// docFile makes a Go file of code in documentation: of declarations, or of statements,
// which it puts into a function.
func docFile(code string) string {
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0); err != nil {
		code = "func _() {\n" + code + "}\n"
	}
	var imports strings.Builder
	for _, name := range docImports {
		if regexp.MustCompile(`\b` + path.Base(name) + `\.`).MatchString(code) {
			fmt.Fprintf(&imports, "import %q\n", name)
		}
	}
	return "package doc\n\n" + imports.String() + "\n" + code
}

// vetDoc checks that pieces of code are formatted, and compile together with prelude.
func vetDoc(t *testing.T, prelude string, pieces []string) {
	t.Helper()
	for _, code := range pieces {
		formatted, err := format.Source([]byte(code))
		require.NoError(t, err, code)
		assert.Equal(t, string(formatted), code, "gofmt")
	}
	dir := t.TempDir()
	var files []string
	for i, code := range append(pieces, prelude) {
		file := filepath.Join(dir, fmt.Sprintf("doc%d.go", i))
		require.NoError(t, os.WriteFile(file, []byte(docFile(code)), 0o600))
		files = append(files, file)
	}
	goCommand(t, "vet", files...)
}

func TestReadme_CodeCompiles(t *testing.T) {
	t.Parallel()
	const prelude = "func greet(ctx context.Context, name string) (string, error) { return name, nil }\n"
	vetDoc(t, prelude, slices.DeleteFunc(readmeBlocks(t, "go"), func(code string) bool { return strings.HasPrefix(code, "package ") }))
}

func TestDoc_CodeCompiles(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var blocks []string
	for _, b := range new(comment.Parser).Parse(f.Doc.Text()).Content {
		if code, ok := b.(*comment.Code); ok {
			blocks = append(blocks, code.Text)
		}
	}
	require.Len(t, blocks, 2)
	vetDoc(t, `type Bot struct {
	model interface {
		Generate(ctx context.Context, conversation []llm.Message) iter.Seq2[string, error]
	}
}
`, blocks)
}

// The first Backends of the README pass the kit, also for several choices.
func TestReadme_BackendsPassTheKit(t *testing.T) {
	t.Parallel()
	blocks := slices.DeleteFunc(readmeBlocks(t, "go"), func(code string) bool {
		return !strings.HasPrefix(code, "var shout =") && !strings.HasPrefix(code, "type Bot struct")
	})
	require.Len(t, blocks, 2)
	code := strings.Join(blocks, "\n") + `
type words struct{}

func (words) Generate(ctx context.Context, conversation []llm.Message) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for word := range strings.FieldsSeq("You said: " + conversation[len(conversation)-1].Content.Text()) {
			if ctx.Err() != nil || !yield(word+" ", nil) {
				return
			}
		}
	}
}

func TestBackends(t *testing.T) {
	for name, b := range map[string]llmhttp.Backend{"shout": shout, "Bot": llmhttp.Choices(&Bot{model: words{}})} {
		t.Run(name, func(t *testing.T) {
			llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{ChatModel: "m", AnyModel: true})
		})
	}
}
`
	file := filepath.Join(t.TempDir(), "backends_test.go")
	require.NoError(t, os.WriteFile(file, []byte(docFile(code)), 0o600))
	goCommand(t, "test", file)
}

// The quickstart runs, and answers the curl commands that follow it.
func TestReadme_Quickstart(t *testing.T) {
	t.Parallel()
	const address = "localhost:8080"
	code := readmeBlocks(t, "go")[0]
	require.Equal(t, 1, strings.Count(code, address))
	assert.LessOrEqual(t, strings.Count(code, "\n"), 15, "lines")

	addr := freeAddress(t)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	require.NoError(t, os.WriteFile(source, []byte(strings.Replace(code, address, addr, 1)), 0o600))
	goCommand(t, "build", "-o", binary, source)
	runServer(t, exec.Command(binary), addr)

	var replies []string
	for _, command := range readmeBlocks(t, "sh") {
		require.Contains(t, command, address)
		replies = append(replies, runCurl(t, strings.ReplaceAll(command, address, addr)))
	}
	require.Len(t, replies, 2)
	assert.Contains(t, replies[0], `"content":"Hello there!"`)
	assert.True(t, strings.HasSuffix(replies[1], "data: [DONE]\n\n"), replies[1])
}

// The gateway uses one of its two servers, and fails over to the other when the first is
// down.
func TestReadme_Gateway(t *testing.T) {
	t.Parallel()
	blocks := readmeBlocks(t, "bash")
	require.Len(t, blocks, 2)
	dir := t.TempDir()
	goCommand(t, "build", "-o", dir, "./examples/inmemory", "./examples/gateway")

	// Run the programs that were built, on free ports.
	const config = "examples/gateway/gateway.json"
	configCopy := filepath.Join(dir, "gateway.json")
	replacements := []string{config, configCopy, "go run ./examples/", "exec " + dir + "/"}
	addresses := map[string]string{}
	for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"} {
		addresses[address] = freeAddress(t)
		replacements = append(replacements, address, addresses[address])
	}
	replacer := strings.NewReplacer(replacements...)
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(configCopy, []byte(replacer.Replace(string(text))), 0o600))

	servers := make(map[string]*exec.Cmd)
	for command := range strings.Lines(blocks[0]) {
		address := regexp.MustCompile(`-addr (\S+)`).FindStringSubmatch(command)
		require.NotNil(t, address, command)
		servers[address[1]] = exec.Command("bash", "-c", replacer.Replace(command))
		runServer(t, servers[address[1]], addresses[address[1]])
	}
	require.Len(t, servers, 3)
	ask := func() { assert.Contains(t, runCurl(t, replacer.Replace(blocks[1])), `"content":"Hello there!"`) }
	ask()
	require.NoError(t, servers["127.0.0.1:8082"].Process.Kill())
	servers["127.0.0.1:8082"].Wait()
	ask()
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// runServer runs a server until the test ends. It returns when the server listens.
func runServer(t *testing.T, server *exec.Cmd, addr string) {
	t.Helper()
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill() // fails if the test has killed it
		server.Wait()         // reports the kill
	})
	waitFor(t, "the server to listen on "+addr, func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// runCurl runs a curl command and returns what it prints.
func runCurl(t *testing.T, command string) string {
	t.Helper()
	tier.Needs(t, "curl")
	_, err := exec.LookPath("curl")
	require.NoError(t, err, "make setup installs curl")
	command = strings.ReplaceAll(command, "curl ", "curl -sS --fail-with-body --max-time 20 ")
	out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
	assert.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}
