// Clients that ask the model in a loop of calls: the requests of Claude Code, and Claude Code itself.

package cachetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// NewServer returns a server whose model calls Bash in so many turns.
func NewServer(calls int) *Server {
	return &Server{Tool: "Bash", Calls: calls, Input: func(turn int) string {
		return fmt.Sprintf(`{"command":"seq -s ' ' %d000 %d300","description":"Step %d"}`, turn+1, turn+1, turn)
	}}
}

// Loop sends the requests that Claude Code sends in a loop of calls, with prompts of its size, to the server of Messages at
// url.
func Loop(t testing.TB, url, key string) {
	t.Helper()
	const hour = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	filler := strings.Repeat("Work with care. ", 1700) // 27 KB
	system := `"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1"},{"type":"text","text":"You are an agent.",` + hour + `},{"type":"text","text":"\n` + filler + `",` + hour + `}]`
	tools := `"tools":[{"name":"Bash","description":"` + filler + `","input_schema":{"type":"object"}},{"name":"Read","description":"R","input_schema":{"type":"object"}}]`
	history := []string{`{"role":"user","content":[{"type":"text","text":"<system-reminder>"},{"type":"text","text":"Go on."%s}]}`}
	for turn := 0; ; turn++ {
		marked := strings.Replace(history[len(history)-1], "%s", `,"cache_control":{"type":"ephemeral"}`, 1)
		messages := strings.ReplaceAll(strings.Join(append(history[:len(history)-1:len(history)-1], marked), ","), "%s", "")
		w := send(t, url+"/v1/messages", key, `{"model":"m","max_tokens":9,"messages":[`+messages+`],`+system+`,`+tools+`}`)
		var reply struct {
			Content    []json.RawMessage
			StopReason string `json:"stop_reason"`
		}
		if err := json.Unmarshal(w, &reply); err != nil || len(reply.Content) == 0 {
			t.Fatalf("the reply is %s: %v", w, err)
		}
		if reply.StopReason == "end_turn" {
			return
		}
		var use struct{ ID string }
		if err := json.Unmarshal(reply.Content[0], &use); err != nil {
			t.Fatal(err)
		}
		history = append(history, `{"role":"assistant","content":[`+string(reply.Content[0])+`]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+use.ID+`","content":"`+strings.Repeat(fmt.Sprint(turn), 1500)+`"%s}]}`)
	}
}

// send sends a request of Messages and returns the body of the reply.
func send(t testing.TB, url, key, body string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the reply is %s %s: %v", res.Status, reply, err)
	}
	return reply
}

// A ClaudeResult is what Claude Code prints at its end.
type ClaudeResult struct {
	Result string
	Usage  struct {
		Read     int `json:"cache_read_input_tokens"`
		Written  int `json:"cache_creation_input_tokens"`
		Creation struct {
			Hour int64 `json:"ephemeral_1h_input_tokens"`
		} `json:"cache_creation"`
	}
}

// ClaudeCode runs Claude Code with a prompt and the server of Messages at url, and returns its result. It skips the test if
// LLMHTTP_CLAUDE_CODE is not the path of Claude Code.
func ClaudeCode(t testing.TB, url, key, prompt string, env ...string) (result ClaudeResult) {
	t.Helper()
	claude := os.Getenv("LLMHTTP_CLAUDE_CODE")
	if claude == "" {
		t.Skip("LLMHTTP_CLAUDE_CODE is not the path of Claude Code")
	}
	c := exec.CommandContext(t.Context(), claude, "-p", prompt, "--output-format", "json", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash", "WebSearch")
	c.Dir = t.TempDir()
	c.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_AUTH_TOKEN="+key, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("Claude Code: %v: %s", err, out)
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("Claude Code: %v: %s", err, out)
	}
	return result
}
