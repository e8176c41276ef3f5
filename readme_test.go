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
	"github.com/llmhttp/llmhttp", "github.com/llmhttp/llmhttp/agent", "github.com/llmhttp/llmhttp/llm", "github.com/llmhttp/llmhttp/llm/join", "github.com/llmhttp/llmhttp/console", "github.com/llmhttp/llmhttp/keycache", "github.com/llmhttp/llmhttp/llmfake", "github.com/llmhttp/llmhttp/llmhttptest",
	"github.com/llmhttp/llmhttp/manage",
	"github.com/llmhttp/llmhttp/memory", "github.com/llmhttp/llmhttp/messages", "github.com/llmhttp/llmhttp/pricing", "github.com/llmhttp/llmhttp/responses", "github.com/llmhttp/llmhttp/responsestore",
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

// The first Backends of docs/backends.md pass the kit, also for several choices.
func TestDocuments_BackendsPassTheKit(t *testing.T) {
	t.Parallel()
	var code string
	for _, b := range codeBlocks(t, "docs/backends.md") {
		if strings.HasPrefix(b.text, "var shout =") || strings.HasPrefix(b.text, "type Bot struct") {
			code += b.text + "\n"
		}
	}
	code += `
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

// A new user follows README in an empty folder, with this checkout in place of a clone: installs
// the package, and runs the quickstart, which answers the commands that follow it.
func TestReadme_Quickstart(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs(".")
	require.NoError(t, err)
	dir := t.TempDir()
	in := func(command string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off") // the cache of modules has what is needed
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
	}
	install := blockTexts(readmeBlocks(t, "sh")[:2])
	require.Equal(t, "go get github.com/llmhttp/llmhttp\n", install[0])
	clone, replace, ok := strings.Cut(install[1], "\n")
	require.True(t, ok)
	require.Equal(t, "git clone https://github.com/llmhttp/llmhttp ../llmhttp", clone)
	in("go mod init example.com/hello")
	in(strings.ReplaceAll(replace, "../llmhttp", checkout))

	const address = "localhost:8080"
	code := readmeBlocks(t, "go")[0].text
	require.Equal(t, 1, strings.Count(code, address))
	assert.LessOrEqual(t, strings.Count(code, "\n"), 25, "lines")
	addr := freeAddress(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.Replace(code, address, addr, 1)), 0o600))
	build := "go build -o hello ."
	if raceEnabled {
		build = "go build -race -o hello ." // the build cache has most packages
	}
	in(build)
	runServer(t, exec.Command(filepath.Join(dir, "hello")), addr)

	var replies []string
	for _, command := range readmeBlocks(t, "sh")[2:] {
		require.Contains(t, command.text, address)
		replies = append(replies, runCurl(t, strings.ReplaceAll(command.text, address, addr)))
	}
	require.Len(t, replies, 2)
	assert.Contains(t, replies[0], `"content":"HELLO THERE!"`)
	assert.Contains(t, replies[1], "HELLO THERE!")
	assert.True(t, strings.HasSuffix(replies[1], "data: [DONE]\n\n"), replies[1])

	// Not every machine has openai-python: the others check the syntax.
	tier.Needs(t, "Python")
	python := readmeBlocks(t, "python")
	require.Len(t, python, 1)
	script := filepath.Join(dir, "ask.py")
	require.NoError(t, os.WriteFile(script, []byte(strings.Replace(python[0].text, address, addr, 1)), 0o600))
	if exec.Command("python3", "-c", "import openai").Run() != nil {
		in("python3 -m py_compile " + script)
		return
	}
	out, err := exec.CommandContext(t.Context(), "python3", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "HELLO THERE!\n", string(out))
}

// readmeBlocks returns the blocks of code in README.md that are marked with a language.
func readmeBlocks(t *testing.T, language string) []codeBlock {
	t.Helper()
	blocks := slices.DeleteFunc(codeBlocks(t, "README.md"), func(b codeBlock) bool { return b.language != language })
	require.NotEmpty(t, blocks)
	return blocks
}

// README.md can be read in two minutes.
func TestReadme_Size(t *testing.T) {
	info, err := os.Stat("README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, info.Size(), int64(12<<10))
}

// The gateway of docs/gateway.md uses one of its two servers, and fails over to the other when the
// first is down.
func TestDocuments_Gateway(t *testing.T) {
	t.Parallel()
	blocks := blockTexts(slices.DeleteFunc(codeBlocks(t, "docs/gateway.md"), func(b codeBlock) bool { return b.language != "sh" }))
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
