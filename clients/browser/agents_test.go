// The agent of docs/agents.md in a browser, as a reader makes it: the files are those of the document,
// and so are the commands.

package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake"
)

var screenshots = flag.String("screenshots", "", "the `directory` to which TestAgentsDocument writes its pictures")

const document = "../../docs/agents.md"

// blocks returns the blocks of code in the document, by language.
func blocks(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	found := make(map[string][]string)
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = append(found[m[1]], m[2])
	}
	return found
}

// checkPackages checks that the packages which the command installs are those of clients/node, and
// links these.
func checkPackages(t *testing.T, dir, install string) {
	t.Helper()
	text, err := os.ReadFile("../node/package.json")
	require.NoError(t, err)
	var manifest struct{ Dependencies, DevDependencies map[string]string }
	require.NoError(t, json.Unmarshal(text, &manifest))
	names, ok := strings.CutPrefix(install, "npm install ")
	require.True(t, ok, install)
	for name := range strings.FieldsSeq(names) {
		name, major := name, ""
		if i := strings.LastIndex(name, "@"); i > 0 {
			name, major = name[:i], name[i+1:]
		}
		version := manifest.Dependencies[name] + manifest.DevDependencies[name]
		require.NotEmpty(t, version, "clients/node/package.json has no %s", name)
		require.True(t, strings.HasPrefix(version, major), "%s %s", name, version)
	}
	modules, err := filepath.Abs("../node/node_modules")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func run(t *testing.T, dir, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off") // the cache of modules has what is needed
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
}

// startAgent builds the agent and its page, and starts it in front of the model. It returns its URL.
func startAgent(t *testing.T, model *llmfake.Server) string {
	t.Helper()
	code, dir := blocks(t), t.TempDir()
	require.Len(t, code["sh"], 2)
	install, bundle, ok := strings.Cut(code["sh"][0], "\n")
	require.True(t, ok)
	checkPackages(t, dir, install)
	write(t, filepath.Join(dir, "web/index.html"), code["html"][0])
	write(t, filepath.Join(dir, "web/page.jsx"), code["jsx"][0])
	run(t, dir, bundle)

	const address = "localhost:8080"
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	l.Close()
	addr := l.Addr().String()
	require.Equal(t, 1, strings.Count(code["go"][0], address))
	write(t, filepath.Join(dir, "main.go"), strings.Replace(code["go"][0], address, addr, 1))
	checkout, err := filepath.Abs("../..")
	require.NoError(t, err)
	run(t, dir, "go mod init example.com/warehouse")
	run(t, dir, "go mod edit -replace=github.com/llmhttp/llmhttp="+checkout+" && go get github.com/llmhttp/llmhttp@v0.0.0")
	run(t, dir, "go build -o agent .")

	cmd := exec.Command(filepath.Join(dir, "agent"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MODEL_URL="+model.OpenAIURL(), "MODEL_KEY=sk-model", "MODEL=large")
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // reports the kill
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return "http://" + addr
}

// A page is a page in Chromium.
type page struct {
	t   *testing.T
	ctx context.Context
}

func openPage(t *testing.T, url string) page {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests may run as root
		chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(2*time.Minute),
	)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	allocator, stop := chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(stop)
	ctx, closePage := chromedp.NewContext(allocator)
	t.Cleanup(closePage)
	p := page{t, ctx}
	p.do(chromedp.EmulateViewport(760, 360), chromedp.Navigate(url))
	return p
}

func (p page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

// ask types a question and sends it.
func (p page) ask(text string) {
	p.t.Helper()
	p.do(chromedp.WaitVisible(chromedp.CSS("textarea")), chromedp.Click(chromedp.CSS("textarea")), chromedp.KeyEvent(text))
	p.do(chromedp.Click(chromedp.CSS("form button")))
}

// waitFor waits until the last element that the selector selects has the text.
func (p page) waitFor(selector, text string) {
	p.t.Helper()
	expression := fmt.Sprintf("[...document.querySelectorAll(%q)].at(-1)?.innerText.includes(%q) ?? false", selector, text)
	if !assert.Eventually(p.t, func() bool {
		ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok
	}, 2*time.Minute, 20*time.Millisecond) {
		shown, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		p.t.Fatalf("%s has no %q; the page shows %q", selector, text, shown)
	}
}

// picture writes a picture of the page if the test has the flag.
func (p page) picture(name string) {
	p.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o600))
}

func TestAgentsDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("make check leaves this out: needs Chromium")
	}
	model := llmfake.NewServer(t)
	p := openPage(t, startAgent(t, model))

	// The agent shows what it does while the model takes its time, and then the answer.
	release := make(chan struct{})
	model.Reply(llmfake.Reason("I look into the warehouse.\n").Call("stock", map[string]any{"item": "umbrellas"}))
	model.Reply(llmfake.Func(func(r *llmfake.Request) llmfake.Reply {
		r.WantToolResult("stock", "12")
		<-release
		return llmfake.Text("There are **12 umbrellas** in the warehouse.")
	}))
	p.ask("How many umbrellas do we have?")
	p.waitFor(".assistant pre", `Looking at stock {"item":"umbrellas"}`)
	p.waitFor("form button", "Stop")
	p.picture("progress")
	close(release)
	p.waitFor(".assistant p", "There are 12 umbrellas in the warehouse.")
	p.waitFor("form button", "Send")

	// The next turn has the conversation.
	model.Reply(llmfake.Text("Yes, eight are enough for them."))
	p.ask("Are there enough for 8 guests?")
	p.waitFor(".assistant p", "Yes, eight are enough for them.")
	p.picture("answer")
	model.Request(2).WantModel("large").WantMessages(
		"user: How many umbrellas do we have?",
		"assistant: There are **12 umbrellas** in the warehouse.",
		"user: Are there enough for 8 guests?",
	)

	// Stop ends the request to the model.
	model.Reply(llmfake.Hang())
	p.ask("And for 80?")
	p.waitFor("form button", "Stop")
	require.Eventually(t, func() bool { return len(model.Requests()) == 4 }, time.Minute, 10*time.Millisecond)
	p.do(chromedp.Click(chromedp.CSS("form button")))
	p.waitFor("form button", "Send")
	require.Eventually(t, func() bool { return model.Request(3).Ended }, time.Minute, 10*time.Millisecond)
}
