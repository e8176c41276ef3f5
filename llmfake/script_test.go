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
		srv.Reset(nil)
		srv.WantRequests(0)
		_, text = ask(t, srv, "Simulated")
		assert.Equal(t, "Simulated", text)
		assert.Empty(t, tb.end())
	})
}

func TestScript_Errors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"replies": [{"text": "a", "reason": "b"}]}`:                           "replies[0]: a step of a reply is an object with one member",
		`{"replies": ["a"]}`:                                                    "replies[0]: a step of a reply is an object with one member",
		`{"replies": {"text": "a"}}`:                                            "replies: the value must be a list, and not object",
		`{"replies": [[]]}`:                                                     "replies[0]: the list of steps is empty",
		`{"replies": [{"text": 5}]}`:                                            "replies[0].text: the value must be a string, and not number",
		`{"replies": [{"text": null}]}`:                                         "replies[0].text: there is no value",
		`{"replies": [{"text": "a"}, [{"text": "b"}, {"txt": "c"}]]}`:           `replies[1][1]: there is no step "txt"`,
		`{"replies": [[{"wait": 3}]]}`:                                          `replies[0][0].wait: a duration is a string such as "300ms", and not 3`,
		`{"replies": [{"wait": "soon"}]}`:                                       `replies[0].wait: a duration is a string such as "300ms", and not "soon"`,
		`{"replies": [{"cut": false}]}`:                                         "replies[0].cut: the value must be true, and not false",
		`{"replies": [{"fail": 200}]}`:                                          "replies[0].fail: the status must be 400 to 599, and not 200",
		`{"replies": [{"fail": {"status": 1}}]}`:                                "replies[0].fail.status: the status must be 400 to 599, and not 1",
		`{"replies": [{"fail": {"state": 1}}]}`:                                 `replies[0].fail: there is no member "state"`,
		`{"replies": [{"html": 101}]}`:                                          "replies[0].html: the status must be 200 to 599, and not 101",
		`{"replies": [{"raw": {"body": "a"}}]}`:                                 "replies[0].raw.status: the status must be 200 to 599, and not 0",
		`{"replies": [{"call": {"name": "f"}}]}`:                                `replies[0].call: there is no member "name"`,
		`{"replies": [{"call": {"arguments": {}}}]}`:                            "replies[0].call: there is no member tool with a name",
		`{"always": {"choices": [{"text": "a"}, {"txt": "b"}]}}`:                `always.choices[1]: there is no step "txt"`,
		`{"always": null}`:                                                      "always: there is no value",
		`{"limits": {"concurrent": -1}}`:                                        "limits.concurrent: a limit must not be negative, as -1 is",
		`{"limits": {"tokens_per_minute": 1.5}}`:                                "limits.tokens_per_minute: the value must be an integer, and not number 1.5",
		`{"chaos": {"rate_limit": 7}}`:                                          "chaos.rate_limit: a probability is from 0 to 1, and not 7",
		`{"chaos": {"html": -1}}`:                                               "chaos.html: a probability is from 0 to 1, and not -1",
		`{"chaos": {"cut_stream": 0.7, "slow": 0.5}}`:                           "chaos: the probabilities must not be more than 1 together, as 1.2 is",
		`{"pace": {"jitter": 9}}`:                                               "pace.jitter: it is a part from 0 to 1, and not 9",
		`{"rules": [{"when": {"model": "a"}}]}`:                                 "rules[0]: a rule needs replies or always",
		`{"rules": [{"always": {"text": "a"}}, {"always": {"txt": "a"}}]}`:      `rules[1].always: there is no step "txt"`,
		`{"rules": [{"when": {"user_matches": "("}, "always": {"cut": true}}]}`: "rules[0].when.user_matches: error parsing regexp",
		`{"rules": [{"when": {"operation": "X"}, "always": {"cut": true}}]}`:    `rules[0].when.operation: llmhttp: the operation "X" is malformed`,
		`{"rules": [{"when": {"operation": "cht"}, "always": {"cut": true}}]}`:  `rules[0].when.operation: there is no "cht": did you mean "chat"?`,
		`{"rules": [{"when": {"protocol": "x"}, "always": {"cut": true}}]}`:     `rules[0].when.protocol: "x" is none of chat, messages and responses`,
		`{"rules": [{"when": {"turn": 0}, "always": {"cut": true}}]}`:           "rules[0].when.turn: the first turn is 1, and not 0",
		`{"rules": [{"when": {"usr": "x"}, "always": {"cut": true}}]}`:          `rules[0].when: there is no member "usr"`,
		`{"reply": 1}`: `there is no member "reply"`,
		`[]`:           "the value must be an object, and not array",
		`{} {}`:        "there is something after the value",
	} {
		_, err := llmfake.ParseScript([]byte(text), true)
		assert.ErrorContains(t, err, want, text)
	}
	_, err := llmfake.ParseScript([]byte(`{"models": [1]}`), true)
	require.Error(t, err)
	assert.Regexp(t, `models(\[0\])?: the value must be a string, and not number`, err.Error())
	_, err = llmfake.ParseScript([]byte("1: a"), false)
	assert.ErrorContains(t, err, `there is no member "1"`)
	_, err = llmfake.ParseScript([]byte("pace: {jitter: .nan}"), false)
	assert.ErrorContains(t, err, "the YAML has no form in JSON")
	_, err = llmfake.ParseScript([]byte("a: b: c"), false)
	assert.ErrorContains(t, err, "yaml")
	_, err = llmfake.ParseScript(nil, false)
	assert.NoError(t, err)

	file := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"reply": 1}`), 0o644))
	tb := newFakeTB(t)
	llmfake.NewServer(tb).Load(file)
	require.Len(t, tb.errors, 1)
	assert.Contains(t, tb.errors[0], `x.json: there is no member "reply"`)
	tb.end()
}

// A rule may be for an operation that this package does not know, whatever its name looks like.
func TestScript_OperationsOfHosts(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"classify", "a__b_", "own.score-2"} {
		script, err := llmfake.ParseScript([]byte(`{"rules":[{"when":{"operation":"`+op+`"},"always":{"cut":true}}],"replies":[{"text":"one"}]}`), true)
		require.NoError(t, err, op)
		tb := newFakeTB(t)
		srv := llmfake.NewServer(tb)
		srv.Use(script)
		ask(t, srv, "Hi")
		ask(t, srv, "Hi again")
		assert.Contains(t, tb.end()[0], `Match("operation `+op+`") got operation chat`)
	}
}
