package llmfake_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// complete sends a chat with the given members and returns the decoded reply.
func complete(t *testing.T, srv *llmfake.Server, members string) *llm.ChatResponse {
	t.Helper()
	res := post(t, srv.Client(), "/v1/chat/completions", `{"model":"gpt-x","messages":[{"role":"user","content":"Hi"}]`+members+`}`)
	var reply llm.ChatResponse
	body := read(t, res)
	require.Equal(t, 200, res.StatusCode, body)
	require.NoError(t, json.Unmarshal([]byte(body), &reply))
	return &reply
}

func TestReply(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)

	srv.Reply(llmfake.JSON(map[string]int{"n": 1}))
	r := complete(t, srv, "")
	assert.Equal(t, `{"n":1}`, r.Choices[0].Message.Content.Text())
	assert.Equal(t, llm.FinishStop, r.Choices[0].FinishReason)
	assert.Positive(t, r.Usage.PromptTokens)
	assert.Positive(t, r.Usage.CompletionTokens)

	srv.Reply(llmfake.Refuse("I will not.").Finish(llm.FinishContentFilter))
	r = complete(t, srv, "")
	assert.Equal(t, "I will not.", r.Choices[0].Message.Refusal)
	assert.Equal(t, llm.FinishContentFilter, r.Choices[0].FinishReason)

	srv.Reply(llmfake.Text("See there.").Cite("https://example.com", "Example", 0, 3).Cite("https://example.org", "Other", 4, 9))
	r = complete(t, srv, "")
	assert.Contains(t, string(r.Choices[0].Message.Extra["annotations"]), "https://example.com")
	assert.Contains(t, string(r.Choices[0].Message.Extra["annotations"]), "https://example.org")

	srv.Reply(llmfake.Choices(llmfake.Text("a"), llmfake.Call("f", nil), llmfake.Text("c").Finish(llm.FinishLength)).Usage(1, 2))
	r = complete(t, srv, `,"n":3`)
	require.Len(t, r.Choices, 3)
	assert.Equal(t, "a", r.Choices[0].Message.Content.Text())
	assert.Equal(t, "f", r.Choices[1].Message.ToolCalls[0].Function.Name)
	assert.Equal(t, "{}", r.Choices[1].Message.ToolCalls[0].Function.Arguments)
	assert.Equal(t, []llm.FinishReason{"stop", "tool_calls", "length"},
		[]llm.FinishReason{r.Choices[0].FinishReason, r.Choices[1].FinishReason, r.Choices[2].FinishReason})
	assert.Equal(t, 3, r.Usage.TotalTokens)

	srv.Reply(llmfake.Text("for all"))
	r = complete(t, srv, `,"n":2`)
	require.Len(t, r.Choices, 2)
	assert.Equal(t, "for all", r.Choices[1].Message.Content.Text())

	srv.Reply(llmfake.Text("x").UsageDetails(llm.Usage{PromptTokens: 5, CompletionTokens: 1, PromptTokensDetails: llm.PromptTokensDetails{CachedTokens: 4}}))
	r = complete(t, srv, "")
	assert.Equal(t, 4, r.Usage.PromptTokensDetails.CachedTokens)

	srv.Reply(llmfake.Call("f", `{"broken`).Call("g", struct{ A int }{1}))
	r = complete(t, srv, "")
	assert.Equal(t, `{"broken`, r.Choices[0].Message.ToolCalls[0].Function.Arguments)
	assert.Equal(t, `{"A":1}`, r.Choices[0].Message.ToolCalls[1].Function.Arguments)
	assert.NotEqual(t, r.Choices[0].Message.ToolCalls[0].ID, r.Choices[0].Message.ToolCalls[1].ID)

	srv.Reply(llmfake.Func(func(r *llmfake.Request) llmfake.Reply { return llmfake.Text(strings.ToUpper(r.UserText())) }))
	r = complete(t, srv, "")
	assert.Equal(t, "HI", r.Choices[0].Message.Content.Text())

	srv.Reply(llmfake.Reply{}.Chunk(&llm.ChatChunk{Choices: []llm.ChunkChoice{{
		Delta: llm.Delta{Content: "x"}, Extra: llm.Extra{"logprobs": json.RawMessage(`{"content":[]}`)},
	}}}))
	r = complete(t, srv, "")
	assert.JSONEq(t, `{"content":[]}`, string(r.Choices[0].Extra["logprobs"]))

	srv.Reply(llmfake.Simulate(), llmfake.Simulate())
	r = complete(t, srv, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"n":{"type":"integer","minimum":3}},"required":["n"]}}}]`)
	assert.Equal(t, "f", r.Choices[0].Message.ToolCalls[0].Function.Name)
	assert.Contains(t, r.Choices[0].Message.ToolCalls[0].Function.Arguments, `"n"`)
	assert.Equal(t, llm.FinishToolCalls, r.Choices[0].FinishReason)
	r = complete(t, srv, `,"max_tokens":1,"n":2`)
	assert.Len(t, r.Choices, 2)
}

// A Reply that is made longer does not change the shorter one, also if both are used.
func TestReply_IsAValue(t *testing.T) {
	t.Parallel()
	base := llmfake.Text("a").Text("b")
	one, two := base.Text("c"), base.Text("d")
	assert.Equal(t, `Text("a").Text("b").Text("c")`, one.String())
	assert.Equal(t, `Text("a").Text("b").Text("d")`, two.String())
	srv := llmfake.NewServer(t)
	srv.Reply(one, two, base)
	for _, want := range []string{"abc", "abd", "ab"} {
		_, text := ask(t, srv, "Hi")
		assert.Equal(t, want, text)
	}
	assert.Equal(t, "Reply{}", llmfake.Reply{}.String())
	assert.Panics(t, func() { llmfake.JSON(func() {}) })
	assert.Panics(t, func() { llmfake.Call("f", func() {}) })
}

// Texts and arguments come in several pieces, and whole characters.
func TestReply_Pieces(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	long := strings.Repeat("日本語", 40)
	srv.Reply(llmfake.Text("one  two\n"+long).Call("f", map[string]string{"text": long}))
	body := read(t, post(t, srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, true, "Hi")))
	assert.Greater(t, strings.Count(body, `"content":"`), 5)
	assert.Greater(t, strings.Count(body, `"arguments":"`), 5)
	assert.NotContains(t, body, "\ufffd")
}

func TestReply_Block(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		goOn := make(chan struct{})
		srv.Reply(llmfake.Text("one ").Block(goOn).Text("two"))
		done := false
		go func() {
			ask(t, srv, "Hi")
			done = true
		}()
		synctest.Wait()
		assert.False(t, done)
		close(goOn)
		synctest.Wait()
		assert.True(t, done)
	})
}

func TestRules(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	tools := `"tools":[{"type":"function","function":{"name":"forecast"}}]`
	turn := func(messages string) string {
		res := post(t, srv.Client(), "/v1/chat/completions", `{"model":"gpt-4o-mini","messages":[`+messages+`],`+tools+`}`)
		return read(t, res)
	}
	user := `{"role":"system","content":"Be brief."},{"role":"user","content":"How is the weather?"}`
	srv.When(llmfake.Model("gpt-4o*"), llmfake.UserText("weather"), llmfake.Turn(1), llmfake.OffersTool("forecast"),
		llmfake.SystemText("brief"), llmfake.Streamed(false), llmfake.Protocol(llmfake.ChatCompletions),
		llmfake.HasHeader("Authorization", "Bearer *"), llmfake.UserTextMatches(`^How`),
		llmfake.Match("has a body", func(r *llmfake.Request) bool { return len(r.Body) > 0 }),
	).Reply(llmfake.Call("forecast", map[string]string{"city": "Bergen"}))
	srv.When(llmfake.HasToolResult("forecast", "rain")).Always(llmfake.Text("Take an umbrella."))
	srv.Always(llmfake.Text("something else"))

	assert.Contains(t, turn(user), "forecast")
	result := user + `,{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"forecast","arguments":"{\"city\": \"Bergen\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"rain"}`
	assert.Contains(t, turn(result), "umbrella")
	assert.Contains(t, turn(result), "umbrella")
	assert.Contains(t, turn(user), "something else")

	r := srv.Request(1)
	r.WantModel("gpt-4o-mini").WantProtocol(llmfake.ChatCompletions).WantSystem("brief").WantTools("forecast").
		WantToolResult("forecast", "rain").WantHeader("Content-Type", "application/json").WantJSON("messages[3].content", "rain").
		WantJSON("tools[0].function", map[string]string{"name": "forecast"}).WantJSON("temperature", nil).
		WantMessages("system: Be brief.", "user: How is the weather?", `assistant: call forecast({"city":"Bergen"})`, "tool: rain")
	assert.Equal(t, 2, r.Turn())
	var body struct{ Model string }
	r.Decode(&body)
	assert.Equal(t, "gpt-4o-mini", body.Model)
}

// The messages of failures say what came and what was expected.
func TestFailures(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.When(llmfake.UserText("weather"), llmfake.Model("gpt-*")).Reply(llmfake.Text("sun"), llmfake.Text("rain"))
	srv.When(llmfake.Match("never", func(*llmfake.Request) bool { return false })).Reply(llmfake.Fail(500))
	srv.When(llmfake.Turn(1))
	srv.Reply(llmfake.Text("Hello"))
	ask(t, srv, "weather")
	ask(t, srv, "Hi")
	status, text := ask(t, srv, "What now?")
	assert.Equal(t, 400, status)
	assert.Contains(t, text, "llmfake")
	require.Len(t, srv.Problems(), 1)
	for _, want := range []string{
		`unexpected request 3: POST /v1/chat/completions, model "gpt-x", user "What now?"`,
		`the replies for any request were given: Text("Hello") to request 2`,
		`When(UserText("weather"), Model("gpt-*")) at reply_test.go:`, `: UserText("weather") got user text "What now?"`,
		`When(Match("never")) at reply_test.go:`, `Match("never") is false`,
		`When(Turn(1)) at reply_test.go:`, `it has no reply; call its method Reply or Always`,
	} {
		assert.Contains(t, srv.Problems()[0], want)
	}

	r := srv.Request(0)
	r.WantModel("other").WantProtocol("messages").WantUserText("other").WantSystem("other").WantTools("f").WantToolResult("f", "x").
		WantHeader("X-Y", "z").WantJSON("model", "other").WantJSON("model", nil).WantJSON("messages[7]", 1).WantJSON("a.b", 1).
		WantMessages("user: weather", "assistant: Hm.")
	srv.WantRequests(7)
	srv.Request(9)
	wants := []string{
		`request 1: got model "gpt-x", want "other"`,
		`got protocol "chat", want "messages"`,
		"got:  \"weather\"\n    want: \"other\"",
		"got:  \"\"\n    want: \"other\"",
		`got tools [], want ["f"]`,
		"no result of a tool is as it should be\n    want: f: \"x\"",
		`got header X-Y: "", want "z"`,
		"model differs\n    got:  \"gpt-x\"\n    want: \"other\"",
		`got model: "gpt-x", want none`,
		"messages[7] is not there: the list has 1 element",
		`a.b is not there: no member "a"`,
		"the messages differ (- got, + want):\n      user: weather\n    + assistant: Hm.",
		"got 3 requests, want 7\n    request 1: POST /v1/chat/completions, model \"gpt-x\", user \"weather\": got 200, Text(\"sun\")",
		"there is no request with index 9, because 3 requests arrived",
	}
	errors := tb.end()
	require.Len(t, errors, 1+len(wants)+1)
	for i, want := range wants {
		assert.Contains(t, errors[1+i], want)
	}
	last := errors[len(errors)-1]
	assert.Contains(t, last, "3 replies were not asked for:")
	assert.Regexp(t, `When\(Turn\(1\)\) at reply_test.go:\d+ has no reply; call its method Reply or Always`, last)
	assert.Contains(t, last, `When(UserText("weather"), Model("gpt-*")): Text("rain"), set at reply_test.go:`)
	assert.Contains(t, last, `Fail(500)`)
}

// A reply that does not fit its request fails the test.
func TestFailures_WrongReply(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.When(llmfake.Embeddings()).Reply(llmfake.Text("x"), llmfake.Vectors([]float32{1}), llmfake.Choices(llmfake.Text("x")), llmfake.Call("f", nil))
	srv.When(llmfake.Images()).Reply(llmfake.Vectors())
	for range 4 {
		res := post(t, srv.Client(), "/v1/embeddings", `{"model":"e","input":["a","b"]}`)
		assert.Equal(t, 400, res.StatusCode)
	}
	res := post(t, srv.Client(), "/v1/images/generations", `{"model":"i","prompt":"a"}`)
	assert.Equal(t, 400, res.StatusCode)
	srv.When(llmfake.Rerank()).Reply(llmfake.Vectors(), llmfake.Scores(1))
	for range 2 {
		assert.Equal(t, 400, post(t, srv.Client(), "/v1/rerank", `{"model":"r","query":"q","documents":["a","b"]}`).StatusCode)
	}
	srv.When(llmfake.Speech()).Reply(llmfake.Vectors())
	res = post(t, srv.Client(), "/v1/audio/speech", `{"model":"tts-1","input":"Hi","voice":"alloy"}`)
	assert.Equal(t, 400, res.StatusCode)
	srv.When(llmfake.Moderations()).Reply(llmfake.Vectors())
	assert.Equal(t, 400, post(t, srv.Client(), "/v1/moderations", `{"input":"Hi"}`).StatusCode)
	srv.When(llmfake.ImageEdits()).Reply(llmfake.Vectors())
	edit := `{"model":"i","prompt":"a","images":[{"image_url":"data:image/png;base64,eA=="}]}`
	assert.Equal(t, 400, post(t, srv.Client(), "/v1/images/edits", edit).StatusCode)
	errors := tb.end()
	require.Len(t, errors, 10)
	assert.Contains(t, errors[9], `which is no reply to a request for edits of images`)
	assert.Contains(t, errors[8], `which is no reply to a request for a moderation`)
	assert.Contains(t, errors[7], `which is no reply to a request for speech`)
	assert.Contains(t, errors[0], `got Text("x"), which is a reply to a chat`)
	assert.Contains(t, errors[1], `has 2 inputs, and its reply has 1 vector`)
	assert.Contains(t, errors[4], `which is no reply to a request for images`)
	assert.Contains(t, errors[5], `which is no reply to a request to rerank`)
	assert.Contains(t, errors[6], `has 2 documents, and its reply has 1 score`)
}

// A Matcher may use the Server.
func TestMatch_MayUseTheServer(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.When(llmfake.Match("second", func(*llmfake.Request) bool { return len(srv.Requests()) == 2 })).Reply(llmfake.Text("two"))
	srv.Reply(llmfake.Text("one"))
	_, text := ask(t, srv, "Hi")
	assert.Equal(t, "one", text)
	_, text = ask(t, srv, "Hi")
	assert.Equal(t, "two", text)
}

func TestAwaitRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tb := newFakeTB(t)
		srv := llmfake.NewServer(tb)
		go func() {
			time.Sleep(9 * time.Second)
			res, err := tryPost(srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
			if err == nil {
				res.Body.Close()
			}
		}()
		assert.Len(t, srv.AwaitRequests(1), 1)
		srv.AwaitRequests(2)
		require.Len(t, tb.errors, 1)
		assert.Contains(t, tb.errors[0], "1 request ended within 10 seconds, want 2")
		tb.end()
	})
}

var _ http.Handler = (*llmfake.Server)(nil)

// Citations come in the form of each format.
func TestReply_Cite(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.Always(llmfake.Text("It rains.").Cite("https://example.com", "Weather", 3, 8))
	for i, want := range []struct{ whole, streamed string }{
		{
			`"content":"It rains.","refusal":null,"annotations":[{"type":"url_citation","url_citation":{"end_index":8,"start_index":3,"title":"Weather","url":"https://example.com"}}]`,
			`"delta":{"annotations":[{"type":"url_citation","url_citation":{"end_index":8,`,
		},
		{
			`"text":"It rains.","citations":[{"type":"web_search_result_location","cited_text":"","encrypted_index":"","title":"Weather","url":"https://example.com"}]`,
			`"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location",`,
		},
		{
			`"annotations":[{"type":"url_citation","start_index":3,"end_index":8,"url":"https://example.com","title":"Weather"}]`,
			`"annotation_index":0,"annotation":{"type":"url_citation","start_index":3,"end_index":8,`,
		},
	} {
		f := formats[i]
		assert.Contains(t, read(t, post(t, srv.Client(), f.path, fmt.Sprintf(f.body, false, "Hi"))), want.whole)
		assert.Contains(t, read(t, post(t, srv.Client(), f.path, fmt.Sprintf(f.body, true, "Hi"))), want.streamed)
	}
}

// The token limit and the stop sequences of a request cut a reply, as they cut that of a model.
func TestReply_Length(t *testing.T) {
	t.Parallel()
	const limit3, stop = `"max_completion_tokens":3`, `"stop":["END","three"]`
	for name, c := range map[string]struct {
		reply   llmfake.Reply
		members string
		want    string // the texts of the choices, refusals, calls, and reasons
		tokens  int
	}{
		"no limit":                     {llmfake.Text("one two three four"), `"n":1`, "one two three four stop", 4},
		"limit":                        {llmfake.Text("one two three four").Text(" five"), limit3, "one two three length", 3},
		"a limit that is reached":      {llmfake.Text("one two").Text(" three"), limit3, "one two three stop", 3},
		"limit in the second text":     {llmfake.Text("one two").Text(" three four"), limit3, "one two three length", 3},
		"limit in a long word":         {llmfake.Text(strings.Repeat("a", 60)), limit3, strings.Repeat("a", 36) + " length", 3},
		"limit of words with delays":   {llmfake.Words("one two three four", time.Millisecond), limit3, "one two three length", 3},
		"limit of JSON":                {llmfake.JSON([]int{1, 2}).Text(" a b c"), limit3, "[1,2] a b length", 3},
		"limit of a refusal":           {llmfake.Refuse("No, I will not."), limit3, "!No, I will length", 3},
		"limit of a call":              {llmfake.Text("one two").Call("f", `{"a": 1, "b": 2}`).Call("g", nil), limit3, `one two|f({"a":) length`, 3},
		"limit before a call":          {llmfake.Text("one two three").Call("f", nil), limit3, "one two three|f({}) length", 3},
		"limit, and the test's reason": {llmfake.Text("one two three four").Finish("content_filter").Usage(7, 70), limit3, "one two three content_filter", 70},
		"reasoning does not count":     {llmfake.Reason("one two three four").Text("one two three"), limit3, "one two three stop", 7},
		"reasoning after the limit":    {llmfake.Text("one two three four").Reason("Hm.").Cite("https://example.com", "", 0, 1), limit3, "one two three length", 3},
		"limit of each choice": {
			llmfake.Choices(llmfake.Text("one two three four"), llmfake.Text("a b c"), llmfake.Text("d").Text(" e f g")), limit3 + `,"n":3`,
			"one two three length a b c stop d e f length", 9,
		},
		"limit of equal choices": {llmfake.Text("one two three four"), limit3 + `,"n":2`, "one two three length one two three length", 6},
		"stop":                   {llmfake.Text("one two three four").Call("f", nil), stop, "one two  stop", 3},
		"stop between texts":     {llmfake.Text("one th").Text("ree four"), stop, "one th stop", 2},
		"stop after the limit":   {llmfake.Text("one two four three"), stop + `,` + limit3, "one two four length", 3},
		"stop in a call":         {llmfake.Call("f", `{"a":"END"}`), stop, `|f({"a":"END"}) tool_calls`, 1},
		"call, then text":        {llmfake.Call("f", nil).Text("one"), `"n":1`, "one|f({}) tool_calls", 2},
		"a chunk is not cut":     {llmfake.Reply{}.Chunk(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Content: "a b c d END"}}}}), limit3 + `,` + stop, "a b c d END stop", 5},
	} {
		srv := llmfake.NewServer(t)
		srv.Reply(c.reply)
		reply := complete(t, srv, ","+c.members)
		var got []string
		for _, choice := range reply.Choices {
			m := choice.Message
			text := m.Content.Text()
			if m.Refusal != "" {
				text += "!" + m.Refusal
			}
			for _, call := range m.ToolCalls {
				text += "|" + call.Function.Name + "(" + call.Function.Arguments + ")"
			}
			assert.NotContains(t, m.Extra, "annotations", name)
			got = append(got, text+" "+string(choice.FinishReason))
		}
		assert.Equal(t, c.want, strings.Join(got, " "), name)
		assert.Equal(t, c.tokens, reply.Usage.CompletionTokens, name)
	}
}

// A fault after the end of a text still happens.
func TestReply_LengthAndFaults(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("one two three").Cut())
	body := strings.Replace(fmt.Sprintf(formats[1].body, true, "Hi"), `"max_tokens":1000`, `"max_tokens":2`, 1)
	got := readBroken(t, post(t, srv.Client(), formats[1].path, body))
	assert.Contains(t, got, " two")
	assert.NotContains(t, got, "three")
}

func TestScores(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.When(llmfake.Rerank(), llmfake.UserText("Bergen")).Reply(llmfake.Scores(0.25, 0.75))
	script, err := llmfake.ParseScript([]byte(`{"rules":[{"when":{"operation":"rerank","user":"Oslo"},"always":{"scores":[0.5,0.125]}}]}`), true)
	require.NoError(t, err)
	srv.Use(script)
	body := read(t, post(t, srv.Client(), "/v2/rerank", `{"model":"r","query":"Bergen","documents":["a","b"]}`))
	assert.Contains(t, body, `"results":[{"index":1,"relevance_score":0.75},{"index":0,"relevance_score":0.25}]`)
	assert.Equal(t, "Bergen", srv.Request(0).Asked.(*rerank.Request).Query)
	body = read(t, post(t, srv.Client(), "/rerank", `{"model":"r","query":"Oslo","documents":["a","b"]}`))
	assert.Contains(t, body, `"results":[{"index":0,"relevance_score":0.5},{"index":1,"relevance_score":0.125}]`)
	body = read(t, post(t, srv.Client(), "/v1/rerank", `{"model":"r","query":"one","documents":["two","one"]}`))
	assert.Contains(t, body, `"model":"r","results":[{"index":1,`, "the simulated model")
}

func TestModerations(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.When(llmfake.Moderations(), llmfake.UserText("Bergen")).Reply(llmfake.Fail(429), llmfake.Simulate())
	const ask = `{"input":"I hate Bergen"}`
	assert.Equal(t, 429, post(t, srv.Client(), "/v1/moderations", ask).StatusCode)
	body := read(t, post(t, srv.Client(), "/v1/moderations", ask))
	assert.Contains(t, body, `"model":"omni-moderation-latest","results":[{"flagged":true,`)
	assert.Equal(t, []string{"I hate Bergen"}, srv.Request(0).Asked.(*moderation.Request).Input.Texts)
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.When(llmfake.Completions(), llmfake.UserText("def f(")).Reply(llmfake.Fail(429), llmfake.Text("x): pass"), llmfake.Text("x): pass").Cut(), llmfake.Simulate())
	ask := func(stream bool) *http.Response {
		return post(t, srv.Client(), "/v1/completions", fmt.Sprintf(`{"model":"base","prompt":"def f(","suffix":"#","stream":%t}`, stream))
	}
	assert.Equal(t, 429, ask(false).StatusCode)
	body := read(t, ask(false))
	assert.Contains(t, body, `"object":"text_completion"`)
	assert.Contains(t, body, `"choices":[{"text":"x): pass","index":0,"logprobs":null,"finish_reason":"stop"}]`)
	assert.Contains(t, readBroken(t, ask(true)), `{"text":" pass"`)
	assert.Contains(t, read(t, ask(true)), `"model":"base","choices":[{"text":" def","index":0,`, "the simulated model")
	assert.Equal(t, "#", srv.Request(0).Asked.(*completion.Request).Suffix)
	assert.Equal(t, "def f(", srv.Request(0).UserText())
}
