// What front ends ask beside the chat: titles, tags and the like. Their public sources are the facts here.

package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// The kinds of requests that [SideRequest] tells.
const (
	SideTitle        = "title"        // a name for the conversation
	SideTags         = "tags"         // words that say what a conversation is about
	SideFollowUps    = "follow_ups"   // what the user may ask next
	SideQueries      = "queries"      // what to search for in documents or the web
	SideAutocomplete = "autocomplete" // how the text that the user writes may go on
	SideImagePrompt  = "image_prompt" // what to ask an image model
	SideEmoji        = "emoji"        // the mood of a message
	SideProbe        = "probe"        // whether the server replies, and with which limits
)

// A sidePrompt is how a front end asks for something beside the chat. All of its texts must be there.
type sidePrompt struct {
	kind   string
	begins string   // of the text
	has    []string // anywhere in the text, after begins
}

// userPrompts are the only message of their requests, from a user, and these are not streamed. A user who
// sends the same text in a chat gets a stream.
var userPrompts = []sidePrompt{
	// Open WebUI: DEFAULT_*_PROMPT_TEMPLATE in backend/open_webui/config.py, which routers/tasks.py
	// sends. Earlier versions have other words in the sentence of the title.
	{SideTitle, "### Task:\nGenerate a concise", []string{" title ", "summarizing the chat history", "<chat_history>"}},
	{SideTags, "### Task:\nGenerate 1-3 broad tags", []string{"of the chat history", "<chat_history>"}},
	{SideFollowUps, "### Task:\nSuggest 3-5 relevant follow-up questions", []string{"<chat_history>"}},
	{SideQueries, "### Task:\nAnalyze the chat history to determine the necessity of generating search queries", []string{"<chat_history>"}},
	{SideAutocomplete, "### Task:\nYou are an autocompletion system.", []string{"<type>", "<text>"}},
	{SideImagePrompt, "### Task:\nGenerate a detailed prompt", []string{"image generation task", "<chat_history>"}},
	{SideEmoji, "Your task is to reflect the speaker's likely facial expression through a fitting emoji.", []string{"Message: ```"}},

	// LibreChat: defaultTitlePrompt and defaultCompletionPrompt in src/utils/title.ts of
	// danny-avila/agents. LibreChat omits streaming from the options: omitTitleOptions. The former also
	// offers a tool or a response format for the title.
	{SideTitle, "Analyze this conversation and provide:\n1. The detected language", []string{"2. A concise title in the detected language"}},
	{SideTitle, "Provide a concise, 5-word-or-less title for the conversation", []string{"return the title itself", "Conversation:"}},
}

// systemPrompts are in a system message, which users do not write.
var systemPrompts = []sidePrompt{
	// opencode: packages/opencode/src/agent/prompt/title.txt
	{SideTitle, "You are a title generator. You output ONLY a thread title.", nil},
	// Claude Code: SESSION_TITLE_PROMPT in src/utils/sessionTitle.ts
	{SideTitle, "Generate a concise, sentence-case title (3-7 words)", []string{`"title"`}},
}

// SideRequest reports whether a request is one that a front end sends beside the chat, and which kind it is: an
// agent should not run for the title of a conversation. It knows Open WebUI, LibreChat, opencode and Claude Code by
// their default prompts; it does not know prompts that an administrator has changed, which are chats then.
//
// A text that a user has pasted into a chat is no side request: it has messages around it, comes in a
// request for a stream, or is not a system message. The exception is a user of a program that asks for no stream
// and sends nothing else than such a prompt, and gets what that asks for. It does not change req.
func SideRequest(req *llm.ChatRequest) (kind string, ok bool) {
	var system, others []*llm.Message
	for i := range req.Messages {
		switch m := &req.Messages[i]; m.Role {
		case llm.RoleSystem, llm.RoleDeveloper:
			system = append(system, m)
		default:
			others = append(others, m)
		}
	}
	for _, m := range system {
		// Claude Code has paragraphs of its own before the prompt.
		if kind := find(systemPrompts, m, strings.Index); kind != "" && len(req.Tools) == 0 {
			return kind, true
		}
	}
	if req.Stream || len(others) != 1 || others[0].Role != llm.RoleUser {
		return "", false
	}
	if limit, ok := req.TokenLimit(); ok && limit == 1 && others[0].Content.Text() == "quota" {
		return SideProbe, true // Claude Code, which reads the headers of the reply
	}
	kind = find(userPrompts, others[0], func(text, begins string) int {
		if strings.HasPrefix(strings.TrimSpace(text), begins) {
			return 0
		}
		return -1
	})
	return kind, kind != ""
}

// find returns the kind of the prompt that m is, or "". index returns where a prompt begins in a text,
// or -1.
func find(prompts []sidePrompt, m *llm.Message, index func(text, begins string) int) string {
	text := m.Content.Text()
	for _, p := range prompts {
		i := index(text, p.begins)
		if i >= 0 && !slices.ContainsFunc(p.has, func(s string) bool { return !strings.Contains(text[i:], s) }) {
			return p.kind
		}
	}
	return ""
}

// A SideBackend is what [Aside] returns. Its methods may be called concurrently. Of the Models it has Chat
// and the list of models of main, and hides everything else, as a [Backend] does.
type SideBackend struct{ main, side Model }

// Aside returns a Backend that lets side answer what front ends ask beside the chat, as [SideRequest] tells it,
// and main everything else. side gets such requests as they came, with the model that the chat has: it may
// change that.
//
//	cheap := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
//		req.Model = "small-1"
//		return models.Chat(ctx, req)
//	})
//	h := llmhttp.NewHandler(agent.Aside(agent.New(models, tools, nil), cheap), keys, nil)
//
// Aside panics if main or side is nil.
func Aside(main, side Model) *SideBackend {
	if option.IsNil(main) || option.IsNil(side) {
		panic("agent: Aside with a nil Model")
	}
	return &SideBackend{main, side}
}

// Chat calls one of the Models.
func (b *SideBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	if _, ok := SideRequest(req); ok {
		return b.side.Chat(ctx, req)
	}
	return b.main.Chat(ctx, req)
}

// ListModels returns the models of main: see [Backend.ListModels].
func (b *SideBackend) ListModels(ctx context.Context) ([]llm.Model, error) {
	return listModels(ctx, b.main)
}
