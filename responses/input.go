// The items of a request.

package responses

import (
	"cmp"
	"context"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsestore"
)

// The types of items that have a conversion of their own. See also hostedCalls and withoutHistory.
const (
	itemMessage         = "message"
	itemReasoning       = "reasoning"
	itemCall            = "function_call"
	itemCallOutput      = "function_call_output"
	itemCustom          = "custom_tool_call"
	itemCustomOutput    = "custom_tool_call_output"
	itemReference       = "item_reference"
	itemAdditionalTools = "additional_tools"
	itemCompaction      = "compaction"
	itemTrigger         = "compaction_trigger"
)

// An inputItem has the members that types of input items have in common, and those that
// may contain large images, which are not to be read several times
// (BenchmarkRequest_Image).
type inputItem struct {
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Role    string         `json:"role"`
	CallID  jsonwire.Value `json:"call_id"`
	Content jsonwire.Value `json:"content"`
	Output  jsonwire.Value `json:"output"`

	path   string         // path in the request, for errors
	raw    jsonwire.Value // the whole item
	loaded bool           // from the store
}

// readInput sets the items of the request.
func (p *protocol) readInput(r *request) (err error) {
	if r.items, err = r.inputItems(); err != nil {
		return err
	}
	if err := r.takeTrigger(); err != nil {
		return err
	}
	if r.compacts {
		r.setCompaction()
	}
	return checkReferences(r.items, p.opts.Store != nil)
}

// loadInput loads what the request continues and refers to.
func (p *protocol) loadInput(ctx context.Context, r *request) (err error) {
	if id := r.body.PreviousResponseID; id != nil {
		if r.history, r.conversation, err = p.loadHistory(ctx, r.account, *id); err != nil {
			return err
		}
	}
	return p.resolveReferences(ctx, r.account, r.items)
}

// convert sets the messages and the tools of the chat request: the instructions, the
// conversation that is continued, and the input. Before these are loaded, they are left
// out, and so are checks that need them.
func (p *protocol) convert(ctx context.Context, r *request, loaded bool) error {
	r.tools = newToolset()
	if err := r.tools.addAll(r.body.Tools, "tools", ""); err != nil {
		return err
	}
	c := &conversation{
		tools: r.tools, sealer: p.sealer, account: r.account, calls: make(map[string]string), dropped: make(map[string]bool), partial: !loaded,
	}
	if text := r.body.Instructions; text != nil && *text != "" {
		c.appendMessage(llm.Message{Role: llm.RoleSystem, Content: llm.TextContent(*text)})
	}
	instructions := len(c.messages)
	history, items := c.dropSummarized(r.history, r.items)
	for _, items := range [][]inputItem{history, items} {
		for i := range items {
			if err := c.addItem(&items[i]); err != nil {
				return err
			}
		}
	}
	r.chat.Messages, r.chat.Tools = c.finish(), r.tools.functions
	if len(r.chat.Messages) == 0 && len(r.items) == 0 && !r.body.Input.IsNull() {
		r.chat.Messages = []llm.Message{} // the input is empty, not missing
	}
	if r.compacts {
		if err := r.addPrompt(cmp.Or(p.opts.CompactPrompt, DefaultCompactPrompt), instructions, loaded); err != nil {
			return err
		}
	}
	llmhttp.CountUnsent(ctx, r.unsentBytes(p.stores(r)))
	if !loaded {
		return r.checkParams()
	}
	return r.setTools()
}

// inputItems returns the items of the input. A string is a message of the user.
func (r *request) inputItems() ([]inputItem, error) {
	raw := r.body.Input
	if raw.IsNull() {
		return nil, nil
	}
	if raw.Kind() == '"' {
		message := `{"type":"message","role":"user","content":` + raw + "}"
		return []inputItem{{Type: itemMessage, Role: "user", Content: raw, path: "input", raw: message}}, nil
	}
	if raw.Kind() != '[' {
		return nil, invalidType("input", "a string or an array of items", raw)
	}
	var items []inputItem
	if err := decode(raw, "input", &items); err != nil {
		return nil, err
	}
	for i := range items {
		if err := items[i].complete(param.Path("input", i, "")); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// DecodeTags reads the item and keeps its text. If that is not an object, complete returns an
// error.
func (item *inputItem) DecodeTags(d *jsonwire.Decoder) {
	type members inputItem // has no methods
	item.raw = d.Text(func() {
		if d.Kind() == '{' {
			d.ByTags((*members)(item))
		} else {
			d.Skip()
		}
	})
}

// newInputItem decodes an item that was loaded from the store.
func newInputItem(body []byte, path string) (inputItem, error) {
	item := inputItem{loaded: true}
	if err := decode(body, path, &item); err != nil {
		return item, err
	}
	return item, item.complete(path)
}

// complete sets the path and a missing type.
func (item *inputItem) complete(path string) error {
	item.path = path
	switch {
	case item.raw.Kind() != '{':
		return invalidType(path, "an object", item.raw)
	case item.Type != "":
	case item.Role != "":
		item.Type = itemMessage
	case item.ID != "":
		item.Type = itemReference
	default:
		return invalid.Missing(memberPath(path, "type"))
	}
	return nil
}

// decode decodes the members of the item that v has.
func (item *inputItem) decode(v any) error { return decode(item.raw, item.path, v) }

// memberPath returns the path of a member of the item, for errors.
func (item *inputItem) memberPath(name string) string { return memberPath(item.path, name) }

// storedInput returns the items of a request in the form in which they are stored.
// Each item has an ID and a type, those of known types that have a status have it, and the
// content of messages is a list of parts.
func storedInput(items []inputItem) ([]responsestore.Item, error) {
	stored := make([]responsestore.Item, len(items))
	for i := range items {
		item := &items[i]
		if item.ID == "" {
			prefix := idPrefixes[item.Type]
			if prefix == "" {
				prefix = "item_"
			}
			item.ID = randomid.New(prefix)
		}
		members := make(map[string]jsonwire.Value)
		if err := item.decode(&members); err != nil {
			return nil, err
		}
		members["id"], members["type"] = textValue(item.ID), textValue(item.Type)
		if idPrefixes[item.Type] != "" && item.Type != itemCompaction && members["status"].IsNull() {
			members["status"] = jsonwire.Value(`"` + statusCompleted + `"`)
		}
		if content := members["content"]; item.Type == itemMessage && content.Kind() == '"' {
			members["content"] = textContent(item.Role, content)
		}
		body, err := marshal(members)
		if err != nil {
			return nil, err
		}
		stored[i] = responsestore.Item{ID: item.ID, Body: body}
	}
	return stored, nil
}

// textValue returns s as a JSON string.
func textValue(s string) jsonwire.Value { return jsonwire.Value(appendString(nil, s)) }

// textContent returns a list of parts with one text, which is a JSON string.
func textContent(role string, text jsonwire.Value) jsonwire.Value {
	if role == string(llm.RoleAssistant) {
		return `[{"type":"output_text","text":` + text + `,"annotations":[],"logprobs":[]}]`
	}
	return `[{"type":"input_text","text":` + text + `}]`
}
