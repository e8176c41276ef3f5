package llmhttp_test

import (
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readmeBlocks returns the blocks of code in a file of Markdown that are
// marked as of the given language.
func readmeBlocks(t *testing.T, file, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	require.NotEmpty(t, blocks)
	return blocks
}

// readmeImports are the packages that code in documentation may use without
// saying so.
var readmeImports = []string{
	"context", "database/sql", "errors", "iter", "log", "log/slog", "net/http", "strings", "time",
	"github.com/llmhttp/llmhttp", "github.com/llmhttp/llmhttp/memory",
	"github.com/llmhttp/llmhttp/route", "github.com/llmhttp/llmhttp/upstream",
}

// readmeGo returns the arguments for a command of Go's. With those that this
// test was built with, it finds most of what it needs built already.
func readmeGo(command string) []string {
	if raceEnabled {
		return []string{command, "-race"}
	}
	return []string{command}
}

// readmeVet checks that fragments compile together: declarations, or
// statements that are as good as a function's.
func readmeVet(t *testing.T, prelude string, fragments []string) {
	t.Helper()
	dir := t.TempDir()
	args := readmeGo("vet")
	add := func(code string) {
		body := code
		if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0); err != nil {
			body = "func _() {\n" + code + "}\n"
		}
		src := "package fragments\n\nimport (\n"
		for _, path := range readmeImports {
			name := path[strings.LastIndex(path, "/")+1:]
			if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
				src += "\t\"" + path + "\"\n"
			}
		}
		src += ")\n\n" + body
		file := filepath.Join(dir, "fragment"+string(rune('a'+len(args)))+".go")
		require.NoError(t, os.WriteFile(file, []byte(src), 0o600))
		args = append(args, file)
	}
	if prelude != "" {
		add(prelude)
	}
	for _, f := range fragments {
		formatted, err := format.Source([]byte(f))
		require.NoError(t, err, f)
		assert.Equal(t, string(formatted), f, "gofmt")
		add(f)
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

func TestReadmeCompiles(t *testing.T) {
	t.Parallel()
	blocks := readmeBlocks(t, "README.md", "go")
	readmeVet(t, "", slices.DeleteFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "package ") }))
}

// The code in the package's documentation compiles too.
func TestDocCompiles(t *testing.T) {
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
	readmeVet(t, `type Bot struct {
	model interface {
		Generate(ctx context.Context, conversation []llmhttp.Message) iter.Seq2[string, error]
	}
}
`, blocks)
}

// The quickstart runs, and answers the commands that follow it.
func TestReadmeQuickstart(t *testing.T) {
	t.Parallel()
	const address = "localhost:8080"
	code := readmeBlocks(t, "README.md", "go")[0]
	require.Equal(t, 1, strings.Count(code, address))
	assert.LessOrEqual(t, strings.Count(code, "\n"), 15, "lines")

	addr := readmeAddr(t)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	require.NoError(t, os.WriteFile(source, []byte(strings.Replace(code, address, addr, 1)), 0o600))
	args := append(readmeGo("build"), "-o", binary, source)
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)

	readmeStart(t, exec.Command(binary), addr)

	var replies []string
	for _, command := range readmeBlocks(t, "README.md", "sh") {
		require.Contains(t, command, address)
		replies = append(replies, readmeCurl(t, strings.ReplaceAll(command, address, addr)))
	}
	require.Len(t, replies, 2)
	assert.Contains(t, replies[0], `"content":"Hello there!"`)
	assert.True(t, strings.HasSuffix(replies[1], "data: [DONE]\n\n"), replies[1])
}

// The gateway of the readme answers through one of its servers, and through the
// other when that is dead.
func TestReadmeGateway(t *testing.T) {
	t.Parallel()
	blocks := readmeBlocks(t, "README.md", "bash")
	require.Len(t, blocks, 2)
	dir := t.TempDir()
	args := append(readmeGo("build"), "-o", dir, "./examples/inmemory", "./examples/gateway")
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)

	addrs := map[string]string{"127.0.0.1:8080": "", "127.0.0.1:8081": "", "127.0.0.1:8082": ""}
	var pairs []string
	for address := range addrs {
		addrs[address] = readmeAddr(t)
		pairs = append(pairs, address, addrs[address])
	}
	config, copied := "examples/gateway/gateway.json", filepath.Join(dir, "gateway.json")
	replacer := strings.NewReplacer(append(pairs, config, copied, "go run ./examples/", "exec "+dir+"/")...)
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, []byte(replacer.Replace(string(text))), 0o600))

	servers := make(map[string]*exec.Cmd)
	for command := range strings.Lines(blocks[0]) {
		address := regexp.MustCompile(`-addr (\S+)`).FindStringSubmatch(command)
		require.NotNil(t, address, command)
		servers[address[1]] = exec.Command("bash", "-c", replacer.Replace(command))
		readmeStart(t, servers[address[1]], addrs[address[1]])
	}
	require.Len(t, servers, 3)
	ask := func() { assert.Contains(t, readmeCurl(t, replacer.Replace(blocks[1])), `"content":"Hello there!"`) }
	ask()
	require.NoError(t, servers["127.0.0.1:8082"].Process.Kill())
	servers["127.0.0.1:8082"].Wait()
	ask()
}

// readmeAddr returns an address that is free.
func readmeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// readmeStart runs a server until the end of the test, and waits until it
// listens.
func readmeStart(t *testing.T, server *exec.Cmd, addr string) {
	t.Helper()
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill() // fails if the test has
		server.Wait()         // reports the kill
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
}

// readmeCurl returns what a curl command prints.
func readmeCurl(t *testing.T, command string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("there is no curl: make setup installs it")
	}
	command = strings.ReplaceAll(command, "curl ", "curl -sS --fail-with-body --max-time 20 ")
	out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
	assert.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}
