package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chromium is the browser, which all tests share. Each test has a context of its
// own, with its own cookies.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(status)
}

func startChromium() {
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // tests may run as root
		chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(2*time.Minute),
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.ctx, chromium.err = ctx, chromedp.Do(ctx)
	chromium.stop = func() { cancel(); stopAllocator() }
}

// A tab is a tab of Chromium in a test. It collects the problems that the browser
// reports.
type tab struct {
	t   testing.TB
	ctx context.Context
	h   *host

	mu       sync.Mutex // guards problems
	problems []string   // errors on the console, and violations of the Content-Security-Policy
}

// newTab opens a tab. When the test ends, it reports errors on the browser's
// console.
func newTab(t testing.TB, h *host) *tab {
	t.Helper()
	tier.Needs(t, "Chromium")
	chromium.once.Do(startChromium)
	require.NoError(t, chromium.err, "Chromium does not start; scripts/setup.sh installs it")
	b := &tab{t: t, h: h}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.listen))
	ctx, cancelTimeout := context.WithTimeout(ctx, 3*time.Minute)
	b.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			b.dump()
		}
		cancelTimeout()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.problems, "errors on the browser's console")
	})
	b.run(enable(log.Enable), enable(runtime.Enable), chromedp.EmulateViewport(1280, 900))
	return b
}

// enable is an action that lets the browser report the events of a domain.
func enable(command cdp.Command[cdp.Empty, cdp.Empty]) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, cdp.Empty{})
		return err
	})
}

// listen collects what the browser reports.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity || e.Entry.Source == log.EntrySourceViolation {
			b.problems = append(b.problems, fmt.Sprint(e.Entry.Source, ": ", e.Entry.Text, " ", e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if (e.Type == "error" || e.Type == "warning") && len(e.Args) > 0 {
			b.problems = append(b.problems, fmt.Sprint("console: ", string(e.Args[0].Value)))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprint("exception: ", e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
	}
}

// expectProblem removes a problem that the test caused.
func (b *tab) expectProblem(part string) {
	b.t.Helper()
	eventually(b.t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, p := range b.problems {
			if strings.Contains(p, part) {
				b.problems = append(b.problems[:i], b.problems[i+1:]...)
				return true
			}
		}
		return false
	}, "the browser reports "+part)
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// dump logs the address and the text of the page.
func (b *tab) dump() {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	b.t.Logf("the browser shows %s (error %v)", text, err)
}

// open opens a page of the console.
func (b *tab) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.h.URL + "/console/" + path))
}

// signIn signs in as the administrator and waits for the overview.
func (b *tab) signIn() {
	b.t.Helper()
	b.open("sign-in")
	b.fill("#name", adminName)
	b.fill("#password", adminPassword)
	b.run(chromedp.Click(chromedp.CSS("form:has(#password) button")))
	b.waitFor("main h1", "Overview")
}

// fill replaces the text of a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.run(chromedp.WaitVisible(chromedp.CSS(selector)))
	evaluate[bool](b, fmt.Sprintf("(document.querySelector(%[1]q).focus(), document.querySelector(%[1]q).select?.(), true)", selector))
	b.run(chromedp.KeyEvent(kb.Backspace + text))
}

// click clicks the link or button with the given text.
func (b *tab) click(text string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.Search(fmt.Sprintf(`//main//*[self::a or self::button][normalize-space()=%q]`, text))))
}

// text returns the text of an element.
func (b *tab) text(selector string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(selector)))
	require.NoError(b.t, err)
	return text
}

// evaluate returns the value of an expression in JavaScript.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return value
}

// waitFor waits until the text of an element contains part.
func (b *tab) waitFor(selector, part string) {
	b.t.Helper()
	expression := fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q) ?? false", selector, part)
	eventually(b.t, func() bool {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok // it fails while a page is loading
	}, fmt.Sprintf("%s contains %q", selector, part))
}

// axeSource returns the source of axe-core, which scripts/setup.sh installs.
var axeSource = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile(filepath.Join("..", "clients", "node", "node_modules", "axe-core", "axe.min.js"))
	return string(b), err
})

// waitForImages waits until the images of a page are loaded.
func (b *tab) waitForImages() {
	b.t.Helper()
	broken := evaluate[string](b, "Promise.all([...document.images].map((i) => i.decode().then(() => '', () => i.src))).then((all) => all.join(''))")
	assert.Empty(b.t, broken, "images are broken")
}

// nameOfFocus returns what screen readers read of the element that has the focus.
func (b *tab) nameOfFocus() string {
	b.t.Helper()
	element, err := chromedp.Call(b.ctx, runtime.Evaluate, runtime.EvaluateParams{Expression: "document.activeElement"})
	require.NoError(b.t, err)
	tree, err := chromedp.Call(b.ctx, accessibility.GetPartialAXTree, accessibility.GetPartialAXTreeParams{
		ObjectID: element.Result.ObjectID, FetchRelatives: new(false),
	})
	require.NoError(b.t, err)
	require.Len(b.t, tree.Nodes, 1)
	return fmt.Sprint(tree.Nodes[0].Name.Value)
}

// setDark makes the browser prefer dark pages.
func (b *tab) setDark() {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	require.NoError(b.t, err)
}

// allowClipboard lets pages read and write the clipboard.
func (b *tab) allowClipboard() {
	b.t.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		_, err := chromedp.CallBrowser(b.ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted,
			Origin: b.h.URL, BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		})
		require.NoError(b.t, err)
	}
}
