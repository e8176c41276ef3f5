// Requests of front ends beside the chat, in the forms that their sources give them.

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
)

// A chat gets the agent, and the title of the conversation comes from a small model.
func ExampleAside() {
	run := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("An hour of research.") })
	small := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply(`{"title": "Bergen"}`) })
	b := agent.Aside(run, small)
	for _, text := range []string{
		"What do I need in Bergen?",
		"### Task:\nGenerate a concise title summarizing the chat history.\n### Chat History:\n<chat_history>\nUSER: What do I need in Bergen?\n</chat_history>",
	} {
		req := &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent(text)}}}
		reply, err := join.Collect(b.Chat(context.Background(), req))
		fmt.Println(reply.Choices[0].Message.Content.Text(), err)
	}
	// Output:
	// An hour of research. <nil>
	// {"title": "Bergen"} <nil>
}

const openWebUIHistory = "\n### Guidelines:\n- ...\n### Output:\nJSON format: {}\n### Chat History:\n<chat_history>\nUSER: How is Bergen?\nASSISTANT: Rainy.\n</chat_history>"

// sideRequests are requests as the front ends send them, with the sentences of their prompts that count.
var sideRequests = []struct{ name, kind, body string }{
	{"Open WebUI, title", agent.SideTitle, user("### Task:\nGenerate a concise title summarizing the chat history." + openWebUIHistory)},
	{"Open WebUI, title of earlier versions", agent.SideTitle, user("### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history." + openWebUIHistory)},
	{"Open WebUI, with the system prompt of a model", agent.SideTitle, `{"role":"system","content":"Be kind."},` + user("### Task:\nGenerate a concise title summarizing the chat history."+openWebUIHistory)},
	{"Open WebUI, tags", agent.SideTags, user("### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, along with 1-3 more specific subtopic tags.\n" + openWebUIHistory)},
	{"Open WebUI, follow-ups", agent.SideFollowUps, user("### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next" + openWebUIHistory)},
	{"Open WebUI, queries", agent.SideQueries, user("### Task:\nAnalyze the chat history to determine the necessity of generating search queries, in the given language." + openWebUIHistory + "\n")},
	{"Open WebUI, autocomplete", agent.SideAutocomplete, user("### Task:\nYou are an autocompletion system. Continue the text in `<text>` based on the **completion type** in `<type>`\n---\n### Context:\n<chat_history>\n</chat_history>\n<type>search query</type>  \n<text>How is</text>  \n#### Output:\n")},
	{"Open WebUI, image prompt", agent.SideImagePrompt, user("### Task:\nGenerate a detailed prompt for am image generation task based on the given language and context." + openWebUIHistory)},
	{"Open WebUI, emoji", agent.SideEmoji, user("Your task is to reflect the speaker's likely facial expression through a fitting emoji. Interpret emotions\n\nMessage: ```Hi```")},
	{"LibreChat, structured", agent.SideTitle, user("Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in the detected language (5 words or less, no punctuation or quotation)\n\nUser: Hi\nAI: Hi") +
		`],"tools":[{"type":"function","function":{"name":"extract","parameters":{"type":"object"}}}],"x":[`},
	{"LibreChat, completion", agent.SideTitle, user("Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the title itself.\n\nConversation:\nUser: Hi\nAI: Hi")},
	{"LibreChat, completion of later versions", agent.SideTitle, user("Provide a concise, 5-word-or-less title for the conversation, using its same language, with no punctuation. Never directly mention the word \"title\" and only return the title itself.\n\nConversation:\nUser: Hi")},
	{"opencode", agent.SideTitle, `{"role":"system","content":"You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>"},` +
		user("Generate a title for this conversation:\n") + "," + user("Fix the test") + `],"stream":true,"x":[`},
	{"Claude Code, title", agent.SideTitle, `{"role":"system","content":[{"type":"text","text":"You are Claude Code."},{"type":"text","text":"Generate a concise, sentence-case title (3-7 words) that captures the main topic or goal of this coding session.\n\nReturn JSON with a single \"title\" field."}]},` +
		user("Fix the test") + `],"stream":true,"x":[`},
	{"Claude Code, quota", agent.SideProbe, user("quota") + `],"max_tokens":1,"x":[`},
}

func user(text string) string {
	b, _ := json.Marshal(text) // a string
	return `{"role":"user","content":` + string(b) + `}`
}

func request(t *testing.T, messages string) *llm.ChatRequest {
	t.Helper()
	req := new(llm.ChatRequest)
	require.NoError(t, json.Unmarshal([]byte(`{"model":"m","messages":[`+messages+`]}`), req))
	return req
}

func TestSideRequest(t *testing.T) {
	for _, test := range sideRequests {
		kind, ok := agent.SideRequest(request(t, test.body))
		assert.True(t, ok, test.name)
		assert.Equal(t, test.kind, kind, test.name)
	}
}

// What people say is a chat, also if they have read such a prompt somewhere.
func TestSideRequest_Chats(t *testing.T) {
	chats := map[string]string{
		"a question about titles": user("Generate a concise title summarizing the chat history."),
		"a quoted prompt":         user("What does this do?\n\n### Task:\nGenerate a concise title summarizing the chat history." + openWebUIHistory),
		"the word quota":          user("quota"),
		"a short reply":           user("Is it raining?") + `],"max_tokens":1,"x":[`,
		"a title of a text":       user("### Task:\nGenerate a concise title for this text: <text>"),
		"a conversation to name":  user("Analyze this conversation and provide:\n1. The detected language of the conversation"),
		"no message of a user":    `{"role":"assistant","content":"quota"}],"max_tokens":1,"x":[`,
		"only a system message":   `{"role":"system","content":"Be kind."}`,
		"an agent that writes titles, with tools": `{"role":"system","content":"You are a title generator. You output ONLY a thread title."},` +
			user("Hi") + `],"tools":[{"type":"function","function":{"name":"read"}}],"x":[`,
	}
	for _, side := range sideRequests {
		if strings.HasPrefix(side.body, `{"role":"system"`) && side.kind == agent.SideTitle && !strings.Contains(side.name, "Open") {
			chats["the system prompt as a text, of "+side.name] = strings.Replace(side.body, `"system"`, `"user"`, 1)
			continue
		}
		if strings.Contains(side.body, `"x":[`) {
			continue
		}
		chats[side.name+", pasted into a stream"] = side.body + `],"stream":true,"x":[`
		chats[side.name+", pasted into a conversation"] = user("Hi") + `,{"role":"assistant","content":"Hello"},` + side.body
	}
	for name, messages := range chats {
		kind, ok := agent.SideRequest(request(t, messages))
		assert.False(t, ok, name)
		assert.Empty(t, kind, name)
	}
}

// The agent does not run for what front ends ask in any format.
func TestAside(t *testing.T) {
	m, cheap := model(answer), model([]memory.Step{memory.Say("A Title")})
	b := agent.Aside(agent.New(m, tools(look), nil), cheap)
	for _, test := range sideRequests {
		assert.Equal(t, "A Title", ask(t, b, request(t, test.body)).Choices[0].Message.Content.Text(), test.name)
	}
	assert.Empty(t, m.requests)
	assert.Equal(t, "Done.", ask(t, b, question()).Choices[0].Message.Content.Text())
	assert.Len(t, cheap.requests, len(sideRequests))

	models, err := agent.Aside(memory.Echo(), cheap).ListModels(t.Context())
	require.NoError(t, err)
	assert.NotEmpty(t, models)
	_, err = b.ListModels(t.Context())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Panics(t, func() { agent.Aside(nil, cheap) })
	assert.Panics(t, func() { agent.Aside(cheap, (*agent.Backend)(nil)) })
}
