package console_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/manage"
)

// samples has a command for the code in each language of the playground. Its
// last argument is the name of a file with the code.
var samples = map[string]struct {
	file    string
	command []string
}{
	"curl":   {"request.sh", []string{"sh"}},
	"Go":     {"main.go", []string{"go", "run"}},
	"Python": {"request.py", []string{"python3"}},
	"Node":   {"request.mjs", []string{nodePath}},
}

// runSample runs the code that the playground shows in a language, and returns
// what it prints.
func (b *tab) runSample(language, secret string) string {
	b.t.Helper()
	b.click(language)
	sample := samples[language]
	dir := b.t.TempDir()
	name := filepath.Join(dir, sample.file)
	require.NoError(b.t, os.WriteFile(name, []byte(evaluate[string](b, "document.getElementById('code').textContent")), 0o600))
	cmd := exec.CommandContext(b.t.Context(), sample.command[0], append(sample.command[1:], name)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LLM_API_KEY="+secret, "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(b.t, err, "%s: %s", language, &stderr)
	return string(out)
}

// setField sets the value of a field and dispatches the event of a change.
func (b *tab) setField(id, value string) {
	b.t.Helper()
	evaluate[bool](b, fmt.Sprintf("((f) => { f.value = %s; return f.dispatchEvent(new Event('input', { bubbles: true })) })(document.getElementById(%q))", mustJSON(b.t, value), id))
}

func mustJSON(t testing.TB, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// TestBrowser_CodeSamples runs the code of the playground. The Backend echoes the
// prompt, which has every character that a language may take for syntax.
func TestBrowser_CodeSamples(t *testing.T) {
	const prompt = "It's \"quoted\" `tick` $HOME ${x} $(x) \\n \\ ''' \"\"\" %s <b>&amp;</b>\nnext\tline \u00e9 \u6f22 \U0001f600 \u2028 \ufeff \u0085 end"
	h := newHost(t, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{})
	b := newTab(t, h)
	b.signIn()
	b.open("playground?key=" + info.ID)
	b.waitFor("#code", "demo-chat")
	for language := range samples {
		assert.Regexp(t, `(?s)data: \{.*\[DONE\]`, b.runSample(language, secret), language)
	}
	b.run(chromedp.Click(chromedp.CSS("#stream")))
	b.setField("prompt", prompt)
	for language := range samples {
		var reply struct {
			Choices []struct{ Message struct{ Content string } }
		}
		require.NoError(t, json.Unmarshal([]byte(b.runSample(language, secret)), &reply), language)
		require.Len(t, reply.Choices, 1, language)
		assert.Equal(t, prompt, reply.Choices[0].Message.Content, language)
	}
	b.open("playground?mode=embeddings&key=" + info.ID)
	b.waitFor("#code", "demo-embed")
	assert.Contains(t, b.runSample("curl", secret), `"embedding"`)
	b.open("playground?mode=images&key=" + info.ID)
	b.waitFor("#code", "demo-image")
	b.setField("model", "demo-image-small")
	b.setField("size", "256x256")
	assert.Contains(t, b.runSample("Python", secret), `"b64_json"`)
}
