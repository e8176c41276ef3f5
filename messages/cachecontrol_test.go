package messages_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The marks of a prompt that is to be cached stay where they are: in requests for a reply and for a count.
func TestCacheControl_Kept(t *testing.T) {
	const (
		mark  = `"cache_control":{"type":"ephemeral"}`
		hour  = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
		user  = `{"role":"user","content":"Hi"}`
		usual = `"messages":[` + user + `]`
	)
	content := func(blocks string) string { return `,"messages":[{"role":"user","content":[` + blocks + `]}]` }
	reply := func(blocks string) string {
		return `,"messages":[` + user + `,{"role":"assistant","content":[` + blocks + `]}]`
	}
	parts := func(parts string) string { return `"messages":[{"role":"user","content":[` + parts + `]}]` }
	for name, test := range map[string]struct{ members, want string }{
		"text":   {content(`{"type":"text","text":"a",` + mark + `}`), parts(`{"type":"text","text":"a",` + mark + `}`)},
		"null":   {content(`{"type":"text","text":"Hi","cache_control":null}`), usual},
		"1 hour": {content(`{"type":"text","text":"a",` + hour + `},{"type":"text","text":"b"}`), parts(`{"type":"text","text":"a",` + hour + `},{"type":"text","text":"b"}`)},
		"as the client wrote it": {content(`{"type":"text","text":"a","cache_control":{"ttl":"3w","scope":"global","type":"eternal"}}`),
			parts(`{"type":"text","text":"a","cache_control":{"ttl":"3w","scope":"global","type":"eternal"}}`)},
		"image": {content(`{"type":"image","source":{"type":"url","url":"u"},` + mark + `}`), parts(`{"type":"image_url","image_url":{"url":"u"},` + mark + `}`)},
		"file": {content(`{"type":"document","title":"a.pdf","source":{"type":"url","url":"u"},` + mark + `}`),
			parts(`{"type":"file",` + mark + `,"file":{"file_data":"u","filename":"a.pdf"}}`)},
		"document of two parts": {content(`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` + mark + `}`),
			parts(`{"type":"text","text":"a"},{"type":"text","text":"b",` + mark + `}`)},
		"text in a document": {content(`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a",` + hour + `},{"type":"text","text":"b"}]}}`),
			parts(`{"type":"text","text":"a",` + hour + `},{"type":"text","text":"b"}`)},
		"search result": {content(`{"type":"search_result","title":"T","content":[{"type":"text","text":"a"}],` + mark + `}`), parts(`{"type":"text","text":"T\n\na",` + mark + `}`)},
		"text in a search result": {content(`{"type":"search_result","title":"T","content":[{"type":"text","text":"a",` + hour + `},{"type":"text","text":"b"}]}`),
			parts(`{"type":"text","text":"T\n\nab",` + hour + `}`)},
		"turns of one role": {`,"messages":[{"role":"user","content":[{"type":"text","text":"a",` + mark + `}]},{"role":"user","content":"b"}]`,
			parts(`{"type":"text","text":"a",` + mark + `},{"type":"text","text":"b"}`)},
		"tool result": {content(`{"type":"tool_result","tool_use_id":"c","content":"a",` + mark + `}`),
			`"messages":[{"role":"tool","content":[{"type":"text","text":"a",` + mark + `}],"tool_call_id":"c"}]`},
		"tool result of two blocks": {content(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],` + mark + `}`),
			`"messages":[{"role":"tool","content":[{"type":"text","text":"a"},{"type":"text","text":"b",` + mark + `}],"tool_call_id":"c"}]`},
		"text in a tool result": {content(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a",` + hour + `}],` + mark + `}`),
			`"messages":[{"role":"tool","content":[{"type":"text","text":"a",` + hour + `}],"tool_call_id":"c"}]`},
		"empty tool result": {content(`{"type":"tool_result","tool_use_id":"c",` + mark + `}`),
			`"messages":[{"role":"tool","content":[{"type":"text","text":"",` + mark + `}],"tool_call_id":"c"}]`},
		"tool use": {reply(`{"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"f","input":{"cache_control":1},` + mark + `}`),
			`"messages":[` + user + `,{"role":"assistant","content":"a","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"cache_control\":1}"},` + mark + `}]}]`},
		"text before a tool use": {reply(`{"type":"text","text":"a",` + mark + `},{"type":"tool_use","id":"c","name":"f","input":{}}`),
			`"messages":[` + user + `,{"role":"assistant","content":[{"type":"text","text":"a",` + mark + `}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]`},
		"tools": {hi + `,"tools":[{"name":"f","input_schema":{"cache_control":1}},{"name":"g","input_schema":{},` + mark + `}]`,
			usual + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"cache_control":1}}},{"type":"function","function":{"name":"g","parameters":{}},` + mark + `}]`},
		"system": {hi + `,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1"},{"type":"text","text":"One.",` + hour + `},` +
			`{"type":"text","text":""},{"type":"text","text":"\nTwo.",` + mark + `},{"type":"text","text":"Three."}]`,
			`"messages":[{"role":"system","content":[{"type":"text","text":"One.",` + hour + `},{"type":"text","text":"\n\n\nTwo.",` + mark + `},` +
				`{"type":"text","text":"\n\nThree."}]},` + user + `]`},
		"system turn": {`,"messages":[` + user + `,{"role":"system","content":[{"type":"text","text":"a",` + mark + `}]}]`,
			`"messages":[` + user + `,{"role":"system","content":[{"type":"text","text":"a",` + mark + `}]}]`},
		"request": {hi + `,` + hour, usual + `,` + hour},

		// Blocks that become nothing mark what comes before them, as far as the turn goes.
		"empty text":           {content(`{"type":"text","text":"a"},{"type":"text","text":"",` + mark + `}`), parts(`{"type":"text","text":"a",` + mark + `}`)},
		"only an empty text":   {content(`{"type":"text","text":"",` + mark + `}`), `"messages":[{"role":"user","content":""}]`},
		"two marks of one end": {content(`{"type":"text","text":"a",` + hour + `},{"type":"text","text":"",` + mark + `}`), parts(`{"type":"text","text":"a",` + hour + `}`)},
		"empty text after a result": {content(`{"type":"tool_result","tool_use_id":"c","content":"a"},{"type":"text","text":"",` + mark + `}`),
			`"messages":[{"role":"tool","content":[{"type":"text","text":"a",` + mark + `}],"tool_call_id":"c"}]`},
		"empty text in a result": {content(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"},{"type":"text","text":"",` + mark + `}]}`),
			`"messages":[{"role":"tool","content":[{"type":"text","text":"a",` + mark + `}],"tool_call_id":"c"}]`},
		"empty text after a call": {reply(`{"type":"tool_use","id":"c","name":"f","input":{}},{"type":"text","text":"",` + mark + `}`),
			`"messages":[` + user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},` + mark + `}]}]`},
		"thinking": {reply(`{"type":"thinking","thinking":"Hm.","signature":"",` + mark + `},{"type":"text","text":"a"}`),
			`"messages":[` + user + `,{"role":"assistant","content":"a","reasoning_content":"Hm."}]`},
		"block of a server": {reply(`{"type":"text","text":"a"},{"type":"web_search_tool_result","tool_use_id":"s","content":[],` + mark + `}`),
			`"messages":[` + user + `,{"role":"assistant","content":[{"type":"text","text":"a",` + mark + `}]}]`},
		"empty system text": {hi + `,"system":[{"type":"text","text":"a"},{"type":"text","text":"",` + mark + `}]`,
			`"messages":[{"role":"system","content":[{"type":"text","text":"a",` + mark + `}]},` + user + `]`},
		"attribution": {hi + `,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1",` + mark + `},{"type":"text","text":"a"},{"type":"text","text":"b"}]`,
			`"messages":[{"role":"system","content":"a\n\nb"},` + user + `]`},
		"tool of a server": {hi + `,"tools":[{"name":"f","input_schema":{}},{"type":"web_search_20260318","name":"web_search",` + mark + `}]`,
			usual + `,"tools":[{"type":"function","function":{"name":"f","parameters":{}},` + mark + `}]`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(nil, nil)
			w := s.do("POST", messagesPath, requestBody(test.members))
			require.Equal(t, 200, w.Code, "%s", w.Body)
			got, err := json.Marshal(s.last)
			require.NoError(t, err)
			assert.JSONEq(t, `{"model":"m","max_tokens":9,`+test.want+`}`, string(got))
			assert.Equal(t, 200, s.do("POST", messagesPath+"/count_tokens", requestBody(test.members)).Code)
		})
	}
}

// The texts of a marked system prompt are together what they are without marks, for Backends that read the text.
func TestCacheControl_SystemText(t *testing.T) {
	system := func(mark string) string {
		s := newServer(nil, nil)
		require.Equal(t, 200, s.do("POST", messagesPath, requestBody(hi+`,"system":[{"type":"text","text":"One."`+mark+`},{"type":"text","text":"\n\nTwo."},{"type":"text","text":"Three."`+mark+`}]`)).Code)
		return s.last.Messages[0].Content.Text()
	}
	assert.Equal(t, "One.\n\n\n\nTwo.\n\nThree.", system(""))
	assert.Equal(t, system(""), system(`,"cache_control":{"type":"ephemeral"}`))
}

func TestCacheControl_Errors(t *testing.T) {
	for place, members := range map[string]func(mark string) string{
		"messages.0.content.0.": func(m string) string {
			return `,"messages":[{"role":"user","content":[{"type":"text","text":"a",` + m + `}]}]`
		},
		"messages.0.content.0.source.content.0.": func(m string) string {
			return `,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a",` + m + `}]}}]}]`
		},
		"messages.0.content.0.content.0.": func(m string) string {
			return `,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a",` + m + `}]}]}]`
		},
		"messages.0.content.1.": func(m string) string {
			return `,"messages":[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"f","input":{},` + m + `}]}]`
		},
		"messages.1.content.0.": func(m string) string {
			return `,"messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"a",` + m + `}]}]`
		},
		"system.0.": func(m string) string { return hi + `,"system":[{"type":"text","text":"",` + m + `}]` },
		"tools.0.":  func(m string) string { return hi + `,"tools":[{"name":"f","input_schema":{},` + m + `}]` },
		"tools.1.": func(m string) string {
			return hi + `,"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash",` + m + `}]`
		},
		"": func(m string) string { return hi + `,` + m },
	} {
		for mark, want := range map[string]string{
			`"ephemeral"`:           "cache_control: Input should be an object",
			`[]`:                    "cache_control: Input should be an object",
			`{}`:                    "cache_control.type: Field required",
			`{"ttl":"5m"}`:          "cache_control.type: Field required",
			`{"type":1}`:            "cache_control.type: Input should be a string",
			`{"type":"x","ttl":60}`: "cache_control.ttl: Input should be a string",
		} {
			s := newServer(nil, nil)
			w := s.do("POST", messagesPath, requestBody(members(`"cache_control":`+mark)))
			assert.Equal(t, 400, w.Code, "%s %s", place, mark)
			_, message, err := readError(w.Body.Bytes())
			require.NoError(t, err)
			assert.Equal(t, place+want, message)
			assert.Nil(t, s.last)
		}
	}
}
