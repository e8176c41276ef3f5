package llmfake_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake"
)

// Each step of a script is what the method of Reply with its name is.
func TestScript_Steps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.Load("testdata/steps.yaml")
		wants := []string{
			`Text("one")`,
			`Reason("Hm.").Text("I look.").Call("forecast", "{\"city\":\"Bergen\"}").Call("now", "{}").Call("broken", "{\"a")`,
			`Words("one two", 1s).Usage(3, 4).Finish("length")`,
			`Refuse("No.")`,
			`JSON("{\"n\":1}")`,
			`Text("See there.").Cite("https://example.com")`,
			`Choices(Text("a"), Text("b"))`,
			`Simulate()`,
			`Wait(1m0s).Then(Fail(429))`,
			`FailWith(503 "Down.")`,
			`Text("x").Break(`,
			`Text("x").Cut()`,
			`Text("x").NoEnd()`,
			`Text("x").Malformed()`,
			`HTML(502)`,
			`Raw(418)`,
			`Text("x").BadToolIndices()`,
		}
		for i, want := range wants {
			res, err := tryPost(srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, true, "Hi"))
			require.NoError(t, err)
			body := make([]byte, 1)
			res.Body.Read(body)
			res.Body.Close()
			assert.Contains(t, srv.Request(i).Reply, want)
		}
		assert.Equal(t, 418, srv.Request(15).Status)
		_, text := ask(t, srv, "What is the time?")
		assert.Equal(t, "from a rule", text)
		res := post(t, srv.Client(), "/v1/embeddings", `{"model":"e","input":["a"]}`)
		assert.Contains(t, read(t, res), "[0.5,0.25]")
		assert.Equal(t, 200, get(t, srv, "/v1/models/gpt-y").StatusCode)
		_, text = ask(t, srv, "Something else")
		assert.Equal(t, "always", text)
	})
}

func TestScript_Settings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tb := newFakeTB(t)
		srv := llmfake.NewServer(tb)
		script, err := llmfake.ParseScript([]byte(`{"key":"sk-test","limits":{"requests_per_minute":2,"tokens_per_minute":100000,"concurrent":5},
			"pace":{"first_token":"2s","tokens_per_second":1,"jitter":0},"chaos":{"slow":1,"delay":"1h"},"replies":[{"text":"one two"}]}`), true)
		require.NoError(t, err)
		srv.Use(script)
		began := time.Now()
		status, text := ask(t, srv, "Hi")
		assert.Equal(t, 200, status)
		assert.Equal(t, "one two", text)
		assert.Equal(t, time.Hour+3*time.Second, time.Since(began))
		srv.Reset()
		srv.WantRequests(0)
		_, text = ask(t, srv, "Simulated")
		assert.Equal(t, "Simulated", text)
		assert.Empty(t, tb.end())
	})
}

func TestScript_Errors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"replies": [{"text": "a", "reason": "b"}]}`:                               "a step of a reply is an object with one member",
		`{"replies": ["a"]}`:                                                        "a step of a reply is an object with one member",
		`{"replies": [[{"wait": 3}]]}`:                                              `wait: a duration is a string such as "300ms", and not 3`,
		`{"replies": [{"cut": false}]}`:                                             "cut: the value must be true, and not false",
		`{"replies": [{"fail": 200}]}`:                                              "fail: the status must be 400 to 599, and not 200",
		`{"replies": [{"fail": {"status": 1}}]}`:                                    "fail: the status must be 400 to 599, and not 1",
		`{"replies": [{"fail": {"state": 1}}]}`:                                     `unknown field "state"`,
		`{"replies": [{"call": {"name": "f"}}]}`:                                    `unknown field "name"`,
		`{"rules": [{"when": {"model": "a"}}]}`:                                     "rules[0]: a rule needs replies or always",
		`{"rules": [{"when": {"user_matches": "("}, "always": {"text": "a"}}]}`:     "rules[0]: when: user_matches",
		`{"rules": [{"when": {"operation": "x"}, "always": {"text": "a"}}]}`:        "is none of chat, embeddings and images",
		`{"rules": [{"when": {"protocol": "anthropic"}, "always": {"text": "a"}}]}`: "is none of chat, messages and responses",
		`{"rules": [{"when": {"usr": "x"}, "always": {"text": "a"}}]}`:              `unknown field "usr"`,
		`{} {}`: "there is something after the object",
	} {
		_, err := llmfake.ParseScript([]byte(text), true)
		assert.ErrorContains(t, err, want, text)
	}
	_, err := llmfake.ParseScript([]byte("a: b: c"), false)
	assert.ErrorContains(t, err, "yaml")
	_, err = llmfake.ParseScript(nil, false)
	assert.NoError(t, err)

	file := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"reply": 1}`), 0o644))
	tb := newFakeTB(t)
	llmfake.NewServer(tb).Load(file)
	require.Len(t, tb.errors, 1)
	assert.Contains(t, tb.errors[0], `x.json: json: unknown field "reply"`)
	tb.end()
}
