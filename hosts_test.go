package llmhttp_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/textfilter"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// These tests make mistakes that hosts have made: see docs/hosts.md.

// A host redacts texts and forgets that there is more than chats.
func TestHosts_EmbeddingsAreRedacted(t *testing.T) {
	var got []*llm.EmbeddingRequest
	b := &stubBackend{embed: func(_ context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
		got = append(got, r)
		return &llm.EmbeddingResponse{Vectors: [][]float32{{1}}}, nil
	}}
	server := startServer(t, config{backend: textfilter.New(b, func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: replacer.New("swordfish", "[hidden]").Request}
	})})
	r := server.do("POST", embeddingsPath, `{"model":"m","input":["My password is swordfish."]}`)
	require.Equal(t, http.StatusOK, r.StatusCode, r.body)
	require.Len(t, got, 1)
	assert.Equal(t, []string{"My password is [hidden]."}, got[0].Input.Texts)
	r = server.do("POST", embeddingsPath, `{"model":"m","input":[1,2,3]}`)
	assert.Equal(t, http.StatusBadRequest, r.StatusCode, "what cannot be read is refused")
}

// A host puts a usagebuffer.Buffer in front of its store and a wrapper around that, and does not tell Serve.
func TestHosts_UsageSurvivesShutdown(t *testing.T) {
	store := new(usageLog)
	buffer := usagebuffer.New(store, &usagebuffer.Options{BatchSize: 1000, Delay: time.Hour})
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{Usage: wrappedStore{buffer}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- llmhttp.Serve(ctx, &http.Server{Handler: h}, h, nil, l) }()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+l.Addr().String()+chatPath, strings.NewReader(chatBody))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-demo")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	stop()
	require.NoError(t, <-ended)
	assert.Len(t, store.records(), 1)
}

// A host gives a model another name and forgets the price of that.
func TestHosts_AliasesAreNotFree(t *testing.T) {
	prices, err := pricing.Parse([]byte(`{"models": {"large": {"input": 3, "output": 15}}}`), nil)
	require.NoError(t, err)
	store := new(usageLog)
	key := testKey()
	key.Limits.Quota = llmhttp.Quota{Cost: llm.MoneyUnit}
	h := startServer(t, config{usage: store, keys: keysFor(key), opts: llmhttp.Options{Price: prices.Price}})
	h.chat(withModel(chatBody, "best")).checkError(t, http.StatusNotFound)
	assert.Empty(t, store.records())

	h = startServer(t, config{usage: store, opts: llmhttp.Options{Price: prices.Price}}) // no Quota needs the price
	h.chat(withModel(chatBody, "best"))
	require.Len(t, store.records(), 1)
	assert.True(t, store.records()[0].Unpriced, "and the log says so")
	assert.Contains(t, h.log.String(), "best")

	// At the start, and when prices or routes are read again, the host is told.
	large := memory.Scripted(memory.Say("Hi"))
	router, err := route.New([]route.Route{
		{Model: "large", Targets: []route.Target{{Name: "a", Backend: large}}},
		{Model: "best", Targets: []route.Target{{Name: "a", Backend: large, Model: "large"}}},
	}, nil)
	require.NoError(t, err)
	assert.EqualError(t, prices.Check(t.Context(), router), `pricing: these models have no price: ["best"]`)
	prices, err = pricing.Parse([]byte(`{"models": {"large": {"input": 3, "output": 15}}, "aliases": {"best": "large"}}`), nil)
	require.NoError(t, err)
	assert.NoError(t, prices.Check(t.Context(), router))
}

// A host is a row of the first table of docs/hosts.md.
type host struct {
	name             string
	lines, testLines int // at most; testLines is 0 if its tests are not counted
	dir              string
}

// hosts returns the rows of the first table of docs/hosts.md.
func hosts(t *testing.T) (all []host) {
	text, err := os.ReadFile("docs/hosts.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\w+): .* \| (\d+)(?: \+ (\d+) of tests)? \| .*\(\.\./([^)]*)\) \|$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 5)
	for _, row := range rows {
		h := host{name: row[1], dir: row[4]}
		h.lines, err = strconv.Atoi(row[2])
		require.NoError(t, err)
		if row[3] != "" {
			h.testLines, err = strconv.Atoi(row[3])
			require.NoError(t, err)
		}
		all = append(all, h)
	}
	return all
}

// The hosts have no more lines than docs/hosts.md says.
func TestHosts_Lines(t *testing.T) {
	for _, h := range hosts(t) {
		files, err := filepath.Glob(h.dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, h.dir)
		lines, testLines := 0, 0
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			if n := strings.Count(string(code), "\n"); strings.HasSuffix(file, "_test.go") {
				testLines += n
			} else {
				lines += n
			}
		}
		t.Logf("%s: %d lines, and %d of tests", h.name, lines, testLines)
		assert.LessOrEqual(t, lines, h.lines, h.name)
		if h.testLines > 0 {
			assert.LessOrEqual(t, testLines, h.testLines, h.name)
		}
	}
}

// workarounds are what hosts had to write, as the second table of docs/hosts.md names it, as far as
// the syntax shows it: code is an example of each. Not among them are the errors of a tenant's own key.
var workarounds = []struct {
	name string
	is   func(n ast.Node) bool
	code string
}{
	{"a header of the reply from a Backend", isUse("context.WithValue"), `var _ = context.WithValue(ctx, headerKey{}, w.Header())`},
	{"record and replay", isMethod("RoundTrip", anything), `func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) { return nil, nil }`},
	{"a journal, a queue of replies, matchers", isMethod("ServeHTTP", anything), `func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {}`},
	{"a journal, a queue of replies, matchers", isUse("httptest.NewServer"), `var _ = httptest.NewServer(f)`},
	{"fallback on context length", isText("context_length_exceeded"), `var isTooLong = code == "context_length_exceeded"`},
	{"a box in the context for the end user", isUse("context.WithValue"), `var _ = context.WithValue(ctx, boxKey{}, new(box))`},
	{"a second Limiter for end users", isUse("llmhttp.NewLimiter", "rate.NewLimiter"), `var users = llmhttp.NewLimiter()`},
	{"a second Limiter for end users", isMethod("Take", anything), `func (u *users) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, nil }`},
	{"a budget of an account", isMethod("Chat", isCall("Query")), `func (b budget) Chat() { b.usage.Query(ctx, q) }`},
	{"copies by marshal and unmarshal", isCopy, `func clone(r *llm.ChatRequest) { b, _ := json.Marshal(r); json.Unmarshal(b, r) }`},
	{"redaction of requests and streams", isUse("strings.Replace", "strings.ReplaceAll", "strings.NewReplacer"), `var _ = strings.ReplaceAll(text, secret, "")`},
	{"redaction of requests and streams", isCall("ReplaceAllString", "ReplaceAllStringFunc", "ReplaceAllLiteralString"), `var _ = secrets.ReplaceAllString(text, "")`},
	{"a hot swap", isSwap, `var current atomic.Pointer[llmhttp.Backend]`},
	{"a hot swap", isUse("atomic.Value"), `var current atomic.Value`},
	{"passing a model's texts on, parallel calls, the usage of all calls", isUse("llm.ToolCallDelta"), `var _ = llm.ToolCallDelta{Index: 1}`},
}

func anything(ast.Node) bool { return true }

// isUse returns a function that reports whether a node is one of the names, such as "strings.Replace".
func isUse(names ...string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		return ok && slices.ContainsFunc(names, func(name string) bool {
			pkg, name, _ := strings.Cut(name, ".")
			return isSelector(e, pkg, name)
		})
	}
}

// isCall returns a function that reports whether a node is a call of a method with one of the names.
func isCall(names ...string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains(names, s.Sel.Name)
	}
}

// isMethod returns a function that reports whether a node is a method with the name that has a node
// of the given kind.
func isMethod(name string, is func(ast.Node) bool) func(ast.Node) bool {
	return func(n ast.Node) bool {
		f, ok := n.(*ast.FuncDecl)
		return ok && f.Recv != nil && f.Name.Name == name && contains(f, is)
	}
}

func isText(text string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		return ok && lit.Kind == token.STRING && strings.Contains(lit.Value, text)
	}
}

// isCopy reports whether n is a function that encodes and decodes.
func isCopy(n ast.Node) bool {
	f, ok := n.(*ast.FuncDecl)
	return ok && contains(f, isUse("json.Marshal")) && contains(f, isUse("json.Unmarshal"))
}

// isSwap reports whether n is the type of an atomic pointer to a Backend.
func isSwap(n ast.Node) bool {
	p, ok := n.(*ast.IndexExpr)
	return ok && isUse("atomic.Pointer")(p.X) &&
		contains(p.Index, isUse("llmhttp.Backend", "route.Router", "upstream.Backend"))
}

func contains(n ast.Node, is func(ast.Node) bool) bool {
	for n := range ast.Preorder(n) {
		if is(n) {
			return true
		}
	}
	return false
}

// The hosts have none of the workarounds. Tests are part of the fake, and of no other host.
func TestHosts_Workarounds(t *testing.T) {
	text, err := os.ReadFile("docs/hosts.md")
	require.NoError(t, err)
	for _, w := range workarounds {
		assert.Contains(t, string(text), "\n| "+w.name+" | ")
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+w.code, parser.SkipObjectResolution)
		require.NoError(t, err)
		assert.True(t, contains(f, w.is), "not found: %s", w.code)
	}
	for _, h := range append(hosts(t), host{name: "agent with MCP", dir: "examples/mcpagent"}) {
		files, err := filepath.Glob(h.dir + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") && h.name != "fake" {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, w := range workarounds {
				assert.False(t, contains(f, w.is), "%s: %s", file, w.name)
			}
		}
	}
}
