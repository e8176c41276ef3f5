package messages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// errorText returns the text of the error that a request gets, or "" if it is accepted.
func errorText(t *testing.T, body string) string {
	w := newServer(nil, nil).do("POST", messagesPath, body)
	if w.Code == 200 {
		return ""
	}
	require.Equal(t, 400, w.Code)
	_, message, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	return message
}

func TestRequest_Numbers(t *testing.T) {
	const integer, large, number = "Input should be an integer", "Input should be a number that is not as large", "Input should be a number"
	for _, test := range []struct{ member, value, want string }{
		{"max_tokens", `1`, ""},
		{"max_tokens", `1.0`, ""},
		{"max_tokens", `1e2`, ""},
		{"max_tokens", `1.5e1`, ""},
		{"max_tokens", `9007199254740991`, ""},
		{"max_tokens", `9007199254740992`, large},
		{"max_tokens", `9007199254740993`, large},
		{"max_tokens", `-9007199254740992`, large},
		{"max_tokens", `99999999999999999999`, large},
		{"max_tokens", `1e16`, large},
		{"max_tokens", `1e400`, large},
		{"max_tokens", `1e-400`, ""},
		{"max_tokens", `-0`, ""},
		{"max_tokens", `-1`, "integer below minimum value. Expected a value >= 1, but got -1 instead."},
		{"max_tokens", `1.5`, integer},
		{"max_tokens", `"1"`, integer},
		{"max_tokens", `true`, integer},
		{"max_tokens", `[1]`, integer},
		{"max_tokens", `{}`, integer},
		{"top_k", `4.0`, ""},
		{"top_k", `0.5`, integer},
		{"top_k", `1e300`, large},
		{"temperature", `1`, ""},
		{"temperature", `1e-400`, ""},
		{"temperature", `0.5e0`, ""},
		{"temperature", `1e400`, large},
		{"temperature", `-1e400`, large},
		{"temperature", `1e300`, "Input should be from 0 to 1"},
		{"temperature", `"1"`, number},
		{"temperature", `false`, number},
		{"temperature", `[]`, number},
		{"top_p", `1.0`, ""},
	} {
		t.Run(test.member+" "+test.value, func(t *testing.T) {
			body := `{"model":"m","` + test.member + `":` + test.value + hi
			if test.member != "max_tokens" {
				body += `,"max_tokens":9`
			}
			if test.want != "" {
				test.want = test.member + ": " + test.want
			}
			assert.Equal(t, test.want, errorText(t, body+`}`))
		})
	}
	assert.Equal(t, "thinking.budget_tokens: "+integer, errorText(t, requestBody(hi+`,"thinking":{"type":"enabled","budget_tokens":1.5}`)))
	assert.Empty(t, errorText(t, requestBody(hi+`,"thinking":{"type":"enabled","budget_tokens":2e3}`)))
}

// A member that is null is as if it were missing. An element must not be null.
func TestRequest_Nulls(t *testing.T) {
	block := func(members string) string {
		return requestBody(`,"messages":[{"role":"assistant","content":[{` + members + `}]}]`)
	}
	for _, test := range []struct{ body, want string }{
		{`null`, "Input should be an object"},
		{`{"model":"m","max_tokens":null` + hi + `}`, "max_tokens: Field required"},
		{requestBody(`,"messages":null`), "messages: Field required"},
		{requestBody(`,"messages":[null]`), "messages.0: Input should be an object"},
		{requestBody(`,"messages":[{"role":null,"content":"Hi"}]`), "messages.0.role: Field required"},
		{requestBody(`,"messages":[{"role":"user","content":null}]`), "messages.0.content: Field required"},
		{requestBody(`,"messages":[{"role":"user","content":[{"type":"text","text":"a"},null]}]`), "messages.0.content.1: Input should be an object"},
		{requestBody(hi + `,"stream":null,"stop_sequences":null,"top_p":null,"top_k":null,"output_format":null,"service_tier":null,"thread":null`), ""},
		{requestBody(hi + `,"stop_sequences":[null]`), "stop_sequences.0: Input should be a string"},
		{requestBody(hi + `,"stop_sequences":["a",null]`), "stop_sequences.1: Input should be a string"},
		{requestBody(hi + `,"metadata":{"user_id":null},"output_config":{"effort":null,"format":null}`), ""},
		{requestBody(hi + `,"output_config":{"format":{"type":"json_schema","schema":null}}`), "output_config.format.schema: Field required"},
		{requestBody(hi + `,"thinking":{"type":"enabled","budget_tokens":null}`), "thinking.budget_tokens: Field required"},
		{requestBody(hi + `,"tools":[null]`), "tools.0: Input should be an object"},
		{requestBody(hi + `,"tools":[{"type":null,"name":"f","description":null,"input_schema":{},"strict":null}]`), ""},
		{requestBody(hi + `,"tools":[{"name":"f","input_schema":null}]`), "tools.0.input_schema: Field required"},
		{requestBody(withToolChoice(`{"type":"any","name":null,"disable_parallel_tool_use":null}`)), ""},
		{block(`"type":"text","text":null`), "messages.0.content.0.text: Field required"},
		{block(`"type":"tool_use","id":"t","name":"f","input":null`), "messages.0.content.0.input: Field required"},
		{block(`"type":"image","source":null`), "messages.0.content.0.source: Field required"},
		{block(`"type":"image","source":{"type":"url","url":null}`), "messages.0.content.0.source.url: Field required"},
		{block(`"type":"document","source":{"type":"content","content":null}`), "messages.0.content.0.source.content: Field required"},
		{block(`"type":"document","title":null,"source":{"type":"text","data":"x"}`), ""},
		{block(`"type":"search_result","content":"x","source":1`), ""},
		{block(`"type":"search_result","content":null`), "messages.0.content.0.content: Field required"},
		{block(`"type":"redacted_thinking","data":null`), ""},
		{requestBody(`,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":null,"is_error":null}]}]`), ""},
	} {
		t.Run(test.body, func(t *testing.T) { assert.Equal(t, test.want, errorText(t, test.body)) })
	}
}

// What is ambiguous or not Unicode is refused.
func TestRequest_Strict(t *testing.T) {
	const invalid = "The request body is not valid JSON: it must be one document in UTF-8"
	for _, test := range []struct{ body, want string }{
		{requestBody(hi + `,"streams":"yes","MODELS_":1`), ""}, // unknown members
		{requestBody(hi + `,"x":1,"x":2`), "x: Duplicate field"},
		{requestBody(hi + `,"metadata":{"x":1,"x":2}`), "metadata.x: Duplicate field"},
		{requestBody(hi + `,"x":{"a":1,"a":2}`), "x.a: Duplicate field"},
		{requestBody(hi + `,"x":[0,{"a":1,"a":2}]`), "x.1.a: Duplicate field"},
		{requestBody(hi + `,"tools":[{"name":"f","input_schema":{"a":{"b":1,"b":1}}}]`), "tools.0.input_schema.a.b: Duplicate field"},
		{requestBody(hi + `,"metadata":{"user_id":"a","user_id":"b"}`), "metadata.user_id: Duplicate field"},
		{requestBody(hi + `,"metadata":{"user_id":"a","user\u005fid":"b"}`), "metadata.user_id: Duplicate field"},
		{requestBody(hi + `,"x":{"` + strings.Repeat("a", 99) + `":1,"` + strings.Repeat("a", 99) + `":2}`), "x." + strings.Repeat("a", 64) + "...: Duplicate field"},
		{requestBody(hi + `,"x":"` + "\xff" + `"`), invalid},
		{requestBody(hi + `,"` + "\xff" + `":1`), invalid},
		{requestBody(hi + `,"x":"\ud800"`), invalid},
		{requestBody(hi + `,"x":"\udc00\ud800"`), invalid},
		{requestBody(hi + `,"x":"\ud83d\ude00"`), ""},
		{requestBody(hi + `,"x":01`), invalid},
		{requestBody(hi + `,"x":+1`), invalid},
		{requestBody(hi + `,"x":NaN`), invalid},
		{requestBody(hi + `,"x":"` + "\n" + `"`), invalid},
		{requestBody(hi+`,"x":1`) + ` ` + "\n\t\r", ""},
		{"\ufeff" + requestBody(hi), invalid},
		{requestBody(hi + `,`), invalid},
		{``, invalid},
		{` `, invalid},
		{`"m"`, "Input should be an object"},
	} {
		t.Run(test.body, func(t *testing.T) { assert.Equal(t, test.want, errorText(t, test.body)) })
	}
}

func TestRequest_NestedContentRefused(t *testing.T) {
	result := func(content string) string {
		return requestBody(`,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":` + content + `}]}]`)
	}
	for _, test := range []struct{ body, want string }{
		{result(`{}`), "messages.0.content.0.content: Input should be a string or an array"},
		{result(`[1]`), "messages.0.content.0.content.0: Input should be an object"},
		{result(`[{"type":"text","text":1}]`), "messages.0.content.0.content.0.text: Input should be a string"},
	} {
		t.Run(test.body, func(t *testing.T) { assert.Equal(t, test.want, errorText(t, test.body)) })
	}
}
