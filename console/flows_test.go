package console_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// TestBrowser_Keys lets an administrator create a key, sees a client use it, and
// edits, rotates and revokes it.
func TestBrowser_Keys(t *testing.T) {
	h := newHost(t, nil)
	b := newTab(t, h)
	b.signIn()
	b.open("keys")
	b.click("Create a key")
	b.fill("#name", "my app")
	b.fill("#account", "acme")
	b.fill("#requests", "many")
	b.click("Create")
	b.waitFor(".error", `"many" has no period`)
	b.expectProblem("422")
	b.fill("#requests", "1_000/h")
	b.click("Create")
	b.waitFor("h1", "API key created")
	secret := evaluate[string](b, "document.getElementById('secret').value")
	assert.Contains(t, evaluate[string](b, "location.pathname + location.search"), "/console/key?id=", "reloading does not send the form again")
	b.allowClipboard()
	b.click("Copy")
	b.waitFor(".copy button", "Copied")
	assert.Equal(t, secret, evaluate[string](b, "navigator.clipboard.readText()"))
	b.run(chromedp.Reload())
	b.waitFor("h1", "my app")
	assert.NotContains(t, evaluate[string](b, "document.documentElement.outerHTML"), secret)

	assert.Equal(t, "Hello there!", h.openAI(t, secret), "a client uses the key")
	b.run(chromedp.Reload())
	b.waitFor(".limit", "1 of 1\u202f000 used")
	b.waitFor("main", "Last 30 days")
	b.click("Usage of this key")
	b.waitFor("tbody", time.Now().UTC().Format(time.DateOnly))
	b.open("usage?by=key")
	b.waitFor("tbody", "my app")

	b.open("keys?search=MY+APP")
	b.click("my app")
	b.fill("#requests", "1/h")
	b.click("Save")
	b.waitFor(".limit-value", "1/h")
	require.Equal(t, http.StatusOK, h.chat(t, secret))
	require.Equal(t, http.StatusTooManyRequests, h.chat(t, secret), "the new limit holds")
	b.fill("#requests", "none")
	b.click("Save")
	b.waitFor("main", "No limits.")

	b.click("Rotate")
	b.fill("#overlap", "1h")
	b.click("Rotate")
	b.waitFor("h1", "API key rotated")
	rotated := evaluate[string](b, "document.getElementById('secret').value")
	require.Equal(t, http.StatusOK, h.chat(t, secret), "the previous secret works during the overlap")
	require.Equal(t, http.StatusOK, h.chat(t, rotated))
	b.click("Go to the key")
	b.click("Suspend")
	b.waitFor("h1", "suspended")
	require.Equal(t, http.StatusUnauthorized, h.chat(t, rotated))
	b.click("Resume")
	b.waitFor("h1", "active")
	require.Equal(t, http.StatusOK, h.chat(t, rotated))

	b.click("Revoke")
	b.waitFor("h1", "Revoke the key")
	require.Equal(t, http.StatusOK, h.chat(t, rotated), "it has not been confirmed")
	b.click("Revoke for good")
	b.waitFor("h1", "revoked")
	require.Equal(t, http.StatusUnauthorized, h.chat(t, rotated))
	require.Equal(t, http.StatusUnauthorized, h.chat(t, secret))

	b.open("audit")
	for _, action := range []string{"create key", "rotate key", "suspend key", "resume key", "revoke key", `requests: "1000/h" to "1/h"`} {
		b.waitFor("tbody", action)
	}
}

// TestBrowser_Owner lets a person sign in with a key.
func TestBrowser_Owner(t *testing.T) {
	h := newHost(t, nil)
	_, secret := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: "mine"})
	h.mustCreate(t, manage.KeyParams{Account: "other", Name: "theirs"})
	b := newTab(t, h)
	b.open("keys")
	b.fill("#key", "sk-wrong")
	b.click("Sign in with the key")
	b.waitFor("[role=alert]", "There is no such key")
	b.expectProblem("403")
	b.fill("#key", secret)
	b.click("Sign in with the key")
	b.waitFor("tbody", "mine")
	assert.NotContains(t, b.text("main"), "theirs")
	assert.NotContains(t, b.text("header"), "Overview")
	b.run(chromedp.Click(chromedp.CSS("header button")))
	b.waitFor("h1", "llmhttp console")
}

func TestBrowser_Usage(t *testing.T) {
	h, key := newDemo(t)
	b := newTab(t, h)
	b.signIn()
	b.open("usage?by=account")
	b.waitForImages()
	b.waitFor("tbody", "research")
	b.click("7 days")
	b.waitFor("[aria-label=Periods] [aria-current]", "7 days")
	b.waitFor("[aria-label=Tables] [aria-current]", "By account")
	b.click("Requests")
	b.waitFor("[aria-label=Measures] [aria-current]", "Requests")
	b.waitForImages()
	b.fill("#key", key.ID)
	b.click("Show")
	b.waitFor(".filtered", "Production web app")
	assert.NotContains(t, b.text("tbody"), "research")

	dir := t.TempDir()
	_, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
	})
	require.NoError(t, err)
	b.open("usage?by=model")
	b.click("Download CSV")
	var text string
	eventually(t, func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
		if err != nil || len(files) != 1 {
			return false
		}
		content, err := os.ReadFile(files[0])
		text = string(content)
		return err == nil && strings.Contains(text, "\nsmall-chat,")
	}, "the CSV file is downloaded")
	assert.True(t, strings.HasPrefix(text, "model,requests,prompt_tokens,cached_tokens,"), text)
}

func TestBrowser_Playground(t *testing.T) {
	h := newHost(t, nil)
	h.backend.Delay = 10 * time.Millisecond
	info, secret := h.mustCreate(t, manage.KeyParams{Name: "mine"})
	h.mustCreate(t, manage.KeyParams{Name: "newer"})
	b := newTab(t, h)
	b.signIn()
	b.open("playground?key=" + info.ID)
	b.waitFor("#code", "demo-chat")
	assert.Equal(t, "Demo chat", evaluate[string](b, "document.querySelector('#models option').label"))
	b.fill("#prompt", "One two three, <b>four</b>!")
	b.click("Send")
	b.waitFor("#state", "Complete")
	assert.Equal(t, "One two three, <b>four</b>!", b.text("#reply"))
	assert.Regexp(t, `^[\d.]+ m?s$`, b.text("#first"))
	assert.Regexp(t, `^[\d.]+ m?s$`, b.text("#total"))
	assert.Regexp(t, `^\d+\.\d$`, b.text("#speed"))
	assert.Regexp(t, `^\d+$`, b.text("#completion-tokens"))
	used, err := h.keys.Key(t.Context(), info.ID)
	require.NoError(t, err)
	assert.Equal(t, info.ID, used.ID)
	sums, err := h.usage.Query(t.Context(), llmhttp.UsageQuery{
		Account: info.Account, Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: info.ID}, From: today(), To: today().Add(48 * time.Hour),
	})
	require.NoError(t, err)
	require.Len(t, sums, 1, "the usage is recorded for the key")

	b.run(chromedp.Click(chromedp.CSS("#stream")))
	b.click("Send")
	b.waitFor("#state", "Complete")
	b.waitFor("#reply", "One two three")
	b.run(chromedp.Click(chromedp.CSS("summary")))
	b.fill("#tools", `[{"type": "function", "function": {"name": "forecast", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`)
	b.fill("#extra", `{"tool_choice": "required"}`)
	b.click("Send")
	b.waitFor("#reply", "forecast")
	b.fill("#tools", "nonsense")
	b.click("Send")
	b.waitFor("#problem", "Tools: ")

	for language, part := range map[string]string{"curl": "curl 'http", "Go": "http.NewRequest", "Python": "urllib.request", "Node": "await fetch("} {
		b.fill("#tools", "")
		b.click(language)
		b.waitFor("#code", part)
		assert.NotContains(t, b.text("#code"), secret)
	}
	b.open("playground?mode=images")
	b.waitFor("#code", "demo-image")
	b.fill("#model", "demo-image-small")
	b.fill("#size", "256x256")
	b.click("Send")
	b.waitFor("#state", "Complete")
	b.waitForImages()
	assert.NotZero(t, evaluate[int](b, "document.querySelector('#reply img').naturalWidth"))
	b.open("playground?mode=embeddings")
	b.waitFor("#code", "demo-embed")
	b.fill("#dimensions", "8")
	b.click("Send")
	b.waitFor("#reply", "8 numbers")
	b.fill("#model", "unknown")
	b.click("Send")
	b.waitFor("#problem", "404: ")
	b.expectProblem("404")
	assert.NotContains(t, h.log.String(), secret)
}

// A brokenStreams Backend fails in the middle of each chat.
type brokenStreams struct{ *modeltest.Backend }

func (brokenStreams) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return failingBackend(ctx, req)
}

// TestBrowser_Errors sees the error of a stream, and the focus in fields with mistakes.
func TestBrowser_Errors(t *testing.T) {
	h := newHostWithBackend(t, memory.NewKeyStore(), memory.NewUsageStore(), brokenStreams{modeltest.New()}, nil)
	info, _ := h.mustCreate(t, manage.KeyParams{})
	b := newTab(t, h)
	b.signIn()
	b.open("playground?key=" + info.ID)
	b.waitFor("#code", "demo-chat")
	b.click("Send")
	b.waitFor("#problem", "the model is out of memory")
	assert.Equal(t, "Once upon", b.text("#reply"))
	b.run(chromedp.Click(chromedp.CSS("summary")))
	b.fill("#tools", "nonsense")
	b.click("Send")
	b.waitFor("#problem", "Tools: ")
	assert.True(t, evaluate[bool](b, "document.activeElement.matches('#tools[aria-invalid=true][aria-describedby=problem]')"))
	evaluate[bool](b, "document.getElementById('tools').value = '', true")
	b.click("Send")
	b.waitFor("#problem", "the model is out of memory")
	assert.False(t, evaluate[bool](b, "document.getElementById('tools').hasAttribute('aria-invalid')"))

	b.open("key?id=" + info.ID)
	b.fill("#quota", "much")
	b.click("Save")
	b.waitFor(".error", `"much" has no period`)
	b.expectProblem("422")
	// A browser sets the focus when it draws the page.
	eventually(t, func() bool { return evaluate[string](b, "document.activeElement.id") == "quota" }, "the field with the mistake has the focus")
}

// TestBrowser_Stop stops a stream and sees the Backend stop.
func TestBrowser_Stop(t *testing.T) {
	h := newHost(t, nil)
	h.backend.Delay = 50 * time.Millisecond
	info, _ := h.mustCreate(t, manage.KeyParams{})
	b := newTab(t, h)
	b.signIn()
	b.open("playground?key=" + info.ID)
	b.waitFor("#code", "demo-chat")
	evaluate[bool](b, "document.getElementById('prompt').value = 'word '.repeat(20000), true")
	b.click("Send")
	b.waitFor("#reply", "word word")
	assert.True(t, evaluate[bool](b, "document.getElementById('send').disabled"))
	b.click("Stop")
	b.waitFor("#state", "Stopped.")
	assert.NotEqual(t, "–", b.text("#first"))
	assert.False(t, evaluate[bool](b, "document.getElementById('send').disabled"))
	b.open("overview")
	b.waitFor("main", "canceled")
	eventually(t, func() bool { return strings.HasPrefix(b.text(".tiles dd"), "0") }, "nothing is in flight")
}

// TestBrowser_Keyboard signs in and creates a key without a pointer.
func TestBrowser_Keyboard(t *testing.T) {
	h := newHost(t, nil)
	b := newTab(t, h)
	b.open("sign-in")
	b.focusByTab("#name")
	b.run(chromedp.KeyEvent(adminName + kb.Tab + adminPassword + kb.Enter))
	b.waitFor("h1", "Overview")
	b.open("keys")
	b.run(chromedp.KeyEvent(kb.Tab))
	assert.Equal(t, "Skip to the content", evaluate[string](b, "document.activeElement.textContent"))
	b.run(chromedp.KeyEvent(kb.Enter))
	b.focusByTab("a.primary")
	assert.NotEqual(t, "none", evaluate[string](b, "getComputedStyle(document.activeElement).outlineStyle"), "the focus is visible")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.waitFor("h1", "New API key")
	b.focusByTab("#name")
	b.run(chromedp.KeyEvent("typed"))
	b.focusByTab("[name=scopes][value=all]")
	b.run(chromedp.KeyEvent(" "))
	b.focusByTab("[name=scopes][value=chat]")
	b.run(chromedp.KeyEvent(" "))
	b.focusByTab("form button.primary")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.waitFor("h1", "API key created")
	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.Equal(t, "typed", keys[0].Name)
	assert.Equal(t, []llmhttp.Scope{llmhttp.ScopeChat}, keys[0].Scopes)
}

// TestBrowser_WithoutScripts creates a key and sees usage in a browser that runs no
// scripts.
func TestBrowser_WithoutScripts(t *testing.T) {
	h := newHost(t, nil)
	b := newTab(t, h)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	b.signIn()
	b.open("keys")
	b.click("Create a key")
	b.fill("#name", "my app")
	b.click("Create")
	b.waitFor("h1", "API key created")
	require.Equal(t, http.StatusOK, h.chat(t, evaluate[string](b, "document.getElementById('secret').value")))
	b.open("usage?by=model")
	b.waitFor("tbody", "demo-chat")
	b.focusByTab(".bar-column")
	assert.Equal(t, "block", evaluate[string](b, "getComputedStyle(document.querySelector('.bar-column:focus .values')).display"))
	b.click("By key")
	b.waitFor("tbody", "my app")
	b.open("playground")
	b.waitFor("main", "The playground needs JavaScript.")
}

// focusByTab presses Tab until the element has the focus.
func (b *tab) focusByTab(selector string) {
	b.t.Helper()
	for range 60 {
		if evaluate[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	require.Fail(b.t, "Tab does not reach "+selector)
}

// TestBrowser_Chart reads the values of a chart with the keyboard and with a pointer.
func TestBrowser_Chart(t *testing.T) {
	h := newHost(t, nil)
	h.mustRecord(t, record("1", today(), "acme", "key_1", "large", 4_000_000), record("2", today(), "acme", "key_1", "small", 1_000_000),
		record("3", today().Add(-24*time.Hour), "acme", "key_1", "small", 400))
	b := newTab(t, h)
	b.signIn()
	b.open("usage?measure=cost")
	shown := func() string {
		return evaluate[string](b, "[...document.querySelectorAll('.values')].filter((v) => v.checkVisibility()).map((v) => v.innerText).join('|')")
	}
	assert.Empty(t, shown())
	assert.Equal(t, 1, evaluate[int](b, "document.querySelectorAll('.bar-column[tabindex=\"0\"]').length"), "Tab stops once at the chart")
	b.focusByTab(".bar-column")
	today := shown()
	for _, part := range []string{time.Now().UTC().Format("Jan 2, 2006"), "$10.00", "large\n$8.00", "small\n$2.00"} {
		assert.Contains(t, today, part)
	}
	assert.Regexp(t, "10.00 large .*8.00 small .*2.00", b.nameOfFocus(), "screen readers read the values")
	b.run(chromedp.KeyEvent(kb.ArrowLeft))
	assert.Contains(t, shown(), "$0.0008")
	assert.NotContains(t, shown(), "large")
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	assert.Equal(t, today, shown())
	b.run(chromedp.KeyEvent(kb.Home))
	assert.Contains(t, shown(), "$0.00")
	b.run(chromedp.KeyEvent(kb.Escape))
	assert.Empty(t, shown())

	x, y := evaluate[float64](b, "document.querySelector('.bar-column:last-child').getBoundingClientRect().x + 5"), evaluate[float64](b, "document.querySelector('.bars').getBoundingClientRect().y + 5")
	b.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	assert.Equal(t, today, shown())
	assert.Equal(t, "$10", evaluate[string](b, "document.querySelector('.ticks span').innerText"))
	heights := evaluate[[]float64](b, "[...document.querySelectorAll('.bar-column:last-child rect')].map((r) => r.getBoundingClientRect().height / document.querySelector('.bars').clientHeight)")
	assert.InDeltaSlice(t, []float64{0.8, 0.2}, heights, 0.01)
}

// TestBrowser_Narrow checks that no page is wider than a small screen.
func TestBrowser_Narrow(t *testing.T) {
	h, key := newDemo(t)
	b := newTab(t, h)
	b.signIn()
	b.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for name, path := range demoPages(key) {
		b.open(path)
		assert.LessOrEqual(t, evaluate[int](b, "document.documentElement.scrollWidth"), 360, name)
	}
	b.open("usage")
	for _, bar := range []string{":nth-of-type(1)", ":nth-of-type(15)", ":last-child"} {
		right := evaluate[float64](b, fmt.Sprintf("(document.querySelector('.bar-column%[1]s').focus(), document.querySelector('.bar-column%[1]s .values').getBoundingClientRect().right)", bar))
		assert.Greater(t, right, 0.0, bar)
		assert.LessOrEqual(t, right, 360.0, bar)
	}
}

// TestBrowser_HostileTexts looks at every page of stores with markup in every
// text. Scripts would call alert, which blocks the page, and be violations of the
// Content-Security-Policy.
func TestBrowser_HostileTexts(t *testing.T) {
	h, key := newHostileHost(t)
	_, err := h.keys.UpdateKey(t.Context(), key.ID, func(p *manage.KeyParams) error { p.Scopes, p.Models = nil, nil; return nil })
	require.NoError(t, err)
	b := newTab(t, h)
	b.signIn()
	for name, path := range demoPages(key) {
		b.open(path)
		b.waitForImages()
		assert.Zero(t, evaluate[int](b, "document.querySelectorAll('main script, main img[src=x]').length"), name)
	}

	b.open("playground?key=" + key.ID)
	b.fill("#model", hostile)
	b.fill("#prompt", hostile)
	b.run(chromedp.Click(chromedp.CSS("#stream")))
	for _, language := range []string{"Go", "Python", "Node", "curl"} {
		b.click(language)
	}
	b.click("Send")
	b.waitFor("#problem", "404: ")
	b.expectProblem("404")
	assert.Zero(t, evaluate[int](b, "document.querySelectorAll('main script, main img[src=x]').length"))
}

// TestBrowser_ContentSecurityPolicy checks that the browser reports violations to
// these tests.
func TestBrowser_ContentSecurityPolicy(t *testing.T) {
	b := newTab(t, newHost(t, nil))
	b.open("sign-in")
	evaluate[bool](b, `(() => { const s = document.createElement("script"); s.textContent = "window.ran = 1"; document.body.append(s); return true })()`)
	b.expectProblem("Content Security Policy")
	assert.False(t, evaluate[bool](b, "'ran' in window"))
	evaluate[bool](b, `(document.body.setAttribute("onclick", "window.ran = 1"), document.body.click(), true)`)
	b.expectProblem("Content Security Policy")
	assert.False(t, evaluate[bool](b, "'ran' in window"))
}

// TestBrowser_Accessibility runs axe-core on every page, in both color schemes.
func TestBrowser_Accessibility(t *testing.T) {
	tier.Needs(t, "Chromium")
	source, err := axeSource()
	require.NoError(t, err, "scripts/setup.sh installs axe-core")
	h, key := newDemo(t)
	b := newTab(t, h)
	check := func(name string) {
		t.Helper()
		found := evaluate[string](b, source+`
			;axe.run().then((r) => r.violations
				.filter((v) => ["serious", "critical", "moderate"].includes(v.impact))
				.map((v) => v.id + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join("; ")).join("\n"))`)
		assert.Empty(t, found, name)
	}
	for _, dark := range []bool{false, true} {
		if dark {
			b.setDark()
		} else {
			b.open("sign-in")
			check("sign-in")
			b.fill("#key", "sk-wrong")
			b.click("Sign in with the key")
			b.waitFor("[role=alert]", "There is no such key")
			b.expectProblem("403")
			check("sign-in with a mistake")
			b.signIn()
		}
		for name, path := range demoPages(key) {
			b.open(path)
			check(fmt.Sprint(name, ", dark ", dark))
		}
		b.open("key?id=nothing")
		b.expectProblem("404")
		check("error")
		b.open("keys/new")
		b.fill("#expires", "yesterday")
		b.click("Create")
		b.waitFor(".error", "yesterday")
		b.expectProblem("422")
		check("new key with mistakes")
		b.fill("#expires", "never")
		b.click("Create")
		b.waitFor("h1", "API key created")
		check("secret")
		b.open("playground?key=" + key.ID)
		b.waitFor("#code", "demo-chat")
		b.click("Send")
		b.waitFor("#state", "Complete")
		check("playground with a reply")
	}
	_, secret := h.mustCreate(t, manage.KeyParams{Account: key.Account, Scopes: []llmhttp.Scope{"chat", "models"}})
	b = newTab(t, h)
	b.open("sign-in")
	b.fill("#key", secret)
	b.click("Sign in with the key")
	b.waitFor("h1", "API keys")
	for name, path := range map[string]string{"keys": "keys", "key": "key?id=" + key.ID, "usage": "usage?by=key", "playground": "playground", "account": "account"} {
		b.open(path)
		check(name + " of an account")
	}
	b = newTab(t, newHost(t, func(_ *host, o *console.Options) {
		o.SignIn, o.LoginURL = nil, "/login"
		o.User = func(*http.Request) (console.User, error) { return console.User{}, console.ErrNoUser }
	}))
	b.open("keys")
	b.expectProblem("403")
	b.waitFor("main a", "Sign in")
	check("not signed in at the host")
}
