// Compaction: the reply to a request is a summary of the conversation, encrypted. Clients send it later
// instead of the conversation.

package responses

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsestore"
)

// DefaultCompactPrompt is the Options.CompactPrompt that is used if that is empty.
const DefaultCompactPrompt = `Write a summary of the conversation above. It will replace the conversation: another model continues the work, and sees only the summary and some of the user's messages. Do not answer the user, do not continue the task, and do not call tools.

Include, as far as they occur:
- The goal of the user, and all requests, constraints and preferences that still apply, in the words of the user where the wording matters.
- Facts, decisions and results, exactly: names, paths, identifiers, numbers, commands and their outcomes.
- Errors, failed attempts, and what they have shown.
- The present state: what is done, what is in progress, and what has been changed.
- The next steps.

If the conversation contains an earlier summary, keep everything of it that still matters. Write only the summary.`

// summaryHeading begins the message that a summary becomes.
const summaryHeading = "The conversation before this message was replaced by a summary of it. Continue from here.\n\n"

// retainedBytes bounds the messages that are kept beside a summary, in bytes of their items. Codex, which
// chooses them itself, keeps 64,000 tokens.
const retainedBytes = 256 << 10

// decodeCompact decodes POST /v1/responses/compact. Its request has a part of the members of a request for
// a response. The reply is not stored.
func (p *protocol) decodeCompact(ctx context.Context, _ *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	return p.decodeResponse(ctx, body, true)
}

// takeTrigger removes a compaction_trigger, which asks for a compaction, from the end of the input.
func (r *request) takeTrigger() error {
	for i := range r.items {
		item := &r.items[i]
		switch {
		case item.Type != itemTrigger:
		case i < len(r.items)-1:
			return invalid.Param("invalid_value", item.path, "The 'compaction_trigger' item '%s' must be the last item of 'input'.", item.path)
		default:
			r.items, r.compacts = r.items[:i], true
		}
	}
	return nil
}

// setCompaction removes parameters of the chat request that are for the model's answer and not for a
// summary.
func (r *request) setCompaction() {
	r.chat.ResponseFormat, r.wantsLogprobs = nil, false
	for _, name := range []string{"logprobs", "top_logprobs", "verbosity"} {
		delete(r.chat.Extra, name)
	}
}

// addPrompt appends the prompt that asks for a summary to the messages. instructions is how many messages
// do not belong to the conversation.
func (r *request) addPrompt(prompt string, instructions int, loaded bool) error {
	switch {
	case !loaded || len(r.chat.Messages) > instructions || r.body.Model == "": // a request without a model is refused for that
	case r.body.Input.IsNull():
		return invalid.Missing("input")
	default:
		return invalid.Param("invalid_value", "input", "There is no conversation to compact in 'input'.")
	}
	r.chat.Messages = append(r.chat.Messages, llm.Message{Role: llm.RoleUser, Content: llm.TextContent(prompt)})
	return nil
}

// isCompaction reports whether the item has a summary. compaction_summary is an older name. Versions of
// Codex have stored context_compaction in their sessions.
func (item *inputItem) isCompaction() bool {
	switch item.Type {
	case itemCompaction, "compaction_summary", "context_compaction":
		return true
	}
	return false
}

// addCompaction adds the summary of an item. It is a message of the user, because some servers refuse
// instructions in mid-conversation, and all need another role than the assistant's at the end.
func (c *conversation) addCompaction(item *inputItem) error {
	var v struct {
		Encrypted *string `json:"encrypted_content"`
	}
	if err := item.decode(&v); err != nil {
		return err
	}
	if v.Encrypted == nil {
		return invalid.Missing(item.memberPath("encrypted_content"))
	}
	summary, ok := c.sealer.openSummary(c.account, *v.Encrypted)
	if !ok {
		return errNotDecrypted(item.memberPath("encrypted_content"), item.ID)
	}
	c.appendMessage(llm.Message{Role: llm.RoleUser, Content: llm.TextContent(summaryHeading + summary)})
	return nil
}

// errNotDecrypted returns the error about encrypted content, at path, of the item with the given ID, which
// may be empty.
func errNotDecrypted(path, id string) error {
	if id != "" {
		id = " for item '" + clip(id) + "'"
	}
	return invalid.Param(
		"invalid_encrypted_content",
		path,
		"The encrypted content%s in '%s' could not be verified: it was encrypted by another server, with another secret or for another account.",
		id,
		path,
	)
}

// dropSummarized returns history and items without what the last summary in them replaces: all that is
// before it, except for messages that are not the assistant's, and definitions of tools. Of the messages of
// history, which the client has not chosen, those that fit into retainedBytes are kept. Calls that are
// dropped are noted.
func (c *conversation) dropSummarized(history, items []inputItem) (_, _ []inputItem) {
	if i := lastCompaction(items); i >= 0 {
		return c.drop(history, len(history), retainedBytes), c.drop(items, i, math.MaxInt)
	}
	return c.drop(history, lastCompaction(history), retainedBytes), items
}

// drop returns items without those of the first n that a summary replaces.
func (c *conversation) drop(items []inputItem, n, limit int) []inputItem {
	if n <= 0 {
		return items
	}
	kept := retainedMessages(items[:n], limit, func(role string) bool { return role != string(llm.RoleAssistant) })
	rest := make([]inputItem, 0, len(items))
	for i := range items {
		item := &items[i]
		switch {
		case i >= n || kept[i] || item.Type == itemAdditionalTools:
			rest = append(rest, *item)
		default:
			if id, err := item.callID(); err == nil && id != "" {
				c.dropped[id] = true
			}
			if item.ID != "" {
				c.dropped[item.ID] = true
			}
		}
	}
	return rest
}

// lastCompaction returns the index of the last item with a summary, or -1.
func lastCompaction(items []inputItem) int {
	for i := len(items) - 1; i >= 0; i-- {
		if items[i].isCompaction() {
			return i
		}
	}
	return -1
}

// retainedMessages returns the indices of the messages with the roles that keep wants. It prefers the latest
// ones that have no more than limit bytes together.
func retainedMessages(items []inputItem, limit int, keep func(role string) bool) map[int]bool {
	kept := make(map[int]bool)
	for i := len(items) - 1; i >= 0; i-- {
		item := &items[i]
		if item.Type == itemMessage && keep(item.Role) && len(item.raw) <= limit {
			kept[i], limit = true, limit-len(item.raw)
		}
	}
	return kept
}

// retainedOutput returns the messages of the user that the reply to POST /v1/responses/compact repeats
// before the summary.
func (r *request) retainedOutput() ([]responsestore.Item, error) {
	all := slices.Concat(r.history, r.items)
	kept := retainedMessages(all, retainedBytes, func(role string) bool { return role == string(llm.RoleUser) })
	var messages []inputItem
	for i := range all {
		if kept[i] {
			messages = append(messages, all[i])
		}
	}
	return storedInput(messages)
}

// progressInterval is how often a stream tells that the Backend is writing a summary, of which it sends
// nothing before the end. Codex gives up after five minutes without an event, and comments are none.
const progressInterval = 30 * time.Second

// addToSummary adds a chunk of the Backend to the summary. Reasoning and calls are no part of it.
func (e *encoder) addToSummary(choice *llm.ChunkChoice) error {
	e.summary = append(e.summary, choice.Delta.Content...)
	if choice.FinishReason != "" {
		return e.endSummary(choice.FinishReason)
	}
	if now := time.Now(); e.output.events.enabled && now.Sub(e.progress) >= progressInterval {
		if !e.progress.IsZero() {
			e.responseEvent("response.in_progress")
		}
		e.progress = now
	}
	return nil
}

// endSummary makes the item of a summary that is complete. Another one would lose a part of the
// conversation, so that the request fails. It fails at the end of the reply, when its usage is known.
func (e *encoder) endSummary(reason llm.FinishReason) error {
	text := strings.TrimSpace(string(e.summary))
	e.summary = nil
	switch {
	case reason == llm.FinishLength:
		e.failure = errNoSummary("The summary of the conversation was cut at the limit of tokens, so that the conversation was not compacted.")
	case reason == llm.FinishContentFilter:
		e.failure = errNoSummary("The summary of the conversation was stopped by a content filter, so that the conversation was not compacted.")
	case text == "":
		e.failure = errNoSummary("The model returned no summary of the conversation, so that the conversation was not compacted.")
	}
	if e.failure != nil {
		return nil
	}
	e.outcome.status = statusCompleted
	it, err := e.output.openItem(&item{typ: itemCompaction, encrypted: e.p.sealer.sealSummary(e.req.account, text)})
	if err != nil {
		return err
	}
	return e.output.closeItem(it, statusCompleted)
}

// errNoSummary returns the error about a reply of the Backend that is not a summary. Its tokens are
// charged, so that SDKs must not repeat the request by themselves.
func errNoSummary(message string) error {
	e := llm.Errorf(http.StatusBadGateway, "", "%s", message)
	e.NoRetry = true
	return e
}

// appendCompacted appends the reply to POST /v1/responses/compact.
func (e *encoder) appendCompacted(b []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, e.id...)
	b = append(b, `","object":"response.compaction","created_at":`...)
	b = strconv.AppendInt(b, e.start.Created, 10)
	b = append(b, `,"output":[`...)
	for i := range e.req.retained {
		b = append(append(b, e.req.retained[i].Body...), ',')
	}
	b = e.output.items[0].appendJSON(b, true)
	b = append(b, `],"usage":`...)
	return append(e.outcome.appendUsage(b), '}')
}
