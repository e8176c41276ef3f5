// What chat completions have no form for, between clients and Backends of package upstream/anthropic: see Options.Anthropic
// and package internal/anthropic. Requests are read once more for it.

package messages

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/llm"
)

// keptParams are the members of a request that are kept.
type keptParams struct {
	Messages []keptTurn  `json:"messages"`
	Tools    []keptTool  `json:"tools"`
	Effort   *keptEffort `json:"output_config"`
	keptMembers

	betas []string
}

// keptMembers are the parameters that are kept as the client sent them. Their names are in anthropic.Parameters.
type keptMembers struct {
	ToolChoice        *raw `json:"tool_choice"`
	Thinking          *raw `json:"thinking"`
	ContextManagement *raw `json:"context_management"`
	Container         *raw `json:"container"`
	MCPServers        *raw `json:"mcp_servers"`
	Speed             *raw `json:"speed"`
	Diagnostics       *raw `json:"diagnostics"`
	Compaction        *raw `json:"compaction"`
}

type keptEffort struct {
	Effort *raw `json:"effort"`
}

type keptTurn struct {
	Content keptContent `json:"content"`
}

// keptContent has the blocks of a turn, and none if the content is a string.
type keptContent []keptBlock

// DecodeTags reads an array, or any other value.
func (c *keptContent) DecodeTags(d *jsonwire.Decoder) {
	if d.Kind() != '[' {
		d.Skip()
		return
	}
	d.ByTags((*[]keptBlock)(c))
}

// A keptBlock has the members of a block that a part, a reasoning detail or a tool call has no room for.
type keptBlock struct {
	Type      string `json:"type"`
	Citations *raw   `json:"citations"` // text, document, search_result
	Context   *raw   `json:"context"`   // document
	Caller    *raw   `json:"caller"`    // tool_use
	whole     raw    // a block that nothing stands for
}

// DecodeTags reads a block. It keeps all of it only if that is necessary, because a block may have megabytes.
func (b *keptBlock) DecodeTags(d *jsonwire.Decoder) {
	type members keptBlock // has no methods
	whole := d.TextIf(func() bool {
		d.ByTags((*members)(b))
		return anthropic.IsWhole(b.Type)
	})
	b.whole = whole
}

// A keptTool has what a tool with a schema has besides, or all of another tool.
type keptTool struct {
	Type string `json:"type"`
	Name string `json:"name"`
	keptToolMembers
	whole raw // of a tool without a schema
}

type keptToolMembers struct {
	EagerInputStreaming *raw `json:"eager_input_streaming"`
	DeferLoading        *raw `json:"defer_loading"`
	AllowedCallers      *raw `json:"allowed_callers"`
	InputExamples       *raw `json:"input_examples"`
}

// DecodeTags reads a tool.
func (t *keptTool) DecodeTags(d *jsonwire.Decoder) {
	type members keptTool
	t.whole = d.TextIf(func() bool {
		d.ByTags((*members)(t))
		return t.hasNoSchema()
	})
}

func (t *keptTool) hasNoSchema() bool { return t.Type != "" && t.Type != "custom" }

// keep returns what is kept of a request, or nil if nothing is.
func (p *protocol) keep(r *http.Request, body []byte) (*keptParams, error) {
	if !p.opts.Anthropic {
		return nil, nil
	}
	k := new(keptParams)
	if err := decode(body, k); err != nil {
		return nil, err
	}
	for _, header := range r.Header["Anthropic-Beta"] {
		for beta := range strings.SplitSeq(header, ",") {
			if beta = strings.TrimSpace(beta); beta != "" {
				k.betas = append(k.betas, beta)
			}
		}
	}
	return k, nil
}

// setRequest sets the member of the Extra of req. A nil k sets nothing.
func (k *keptParams) setRequest(req *llm.ChatRequest) {
	if k == nil {
		return
	}
	own := anthropic.Request{Betas: k.betas, Tools: k.tools(), Members: make(map[string]json.RawMessage)}
	for name, value := range k.members() {
		if value != nil {
			own.Members[name] = json.RawMessage(*value)
		}
	}
	if own.Effort = k.Effort != nil && k.Effort.Effort != nil; own.Effort && k.Thinking == nil {
		own.Members["thinking"] = json.RawMessage("null")
	}
	if !k.hasToolsWithoutSchema() {
		delete(own.Members, "tool_choice") // req has it
	}
	if own.Betas != nil || own.Tools != nil || len(own.Members) > 0 {
		setExtra(req, anthropic.Member, &own)
	}
}

func (k *keptParams) members() map[string]*raw {
	m := &k.keptMembers
	return map[string]*raw{
		"tool_choice": m.ToolChoice, "thinking": m.Thinking, "context_management": m.ContextManagement, "container": m.Container,
		"mcp_servers": m.MCPServers, "speed": m.Speed, "diagnostics": m.Diagnostics, "compaction": m.Compaction,
	}
}

// hasToolsWithoutSchema reports whether k has tools that a request of chat completions has not. k may be nil.
func (k *keptParams) hasToolsWithoutSchema() bool {
	return k != nil && slices.ContainsFunc(k.Tools, func(t keptTool) bool { return t.hasNoSchema() })
}

// tools returns the tools in their order, or nil if the request of chat completions has all of them.
func (k *keptParams) tools() (list []json.RawMessage) {
	needed := k.hasToolsWithoutSchema()
	for i := range k.Tools {
		t := &k.Tools[i]
		entry := json.RawMessage(t.whole)
		if t.hasNoSchema() {
			if i > 0 && !k.Tools[0].hasNoSchema() {
				entry = anthropic.Set(entry, promptcache.Member, nil) // the function before has its mark: see setTools
			}
		} else {
			entry = append(jsonwire.AppendString([]byte(`{"name":`), t.Name), '}')
			for _, m := range []struct {
				name  string
				value *raw
			}{
				{"eager_input_streaming", t.EagerInputStreaming}, {"defer_loading", t.DeferLoading},
				{"allowed_callers", t.AllowedCallers}, {"input_examples", t.InputExamples},
			} {
				if m.value != nil {
					entry, needed = anthropic.Set(entry, m.name, json.RawMessage(*m.value)), true
				}
			}
		}
		list = append(list, entry)
	}
	if !needed {
		return nil
	}
	return list
}

// A keptBlocks notes the order of the blocks of a turn of the assistant, and what is kept of them. The zero value keeps
// nothing.
type keptBlocks struct {
	turn   []keptBlock // what is kept of the turn that is being converted
	on     bool
	layout []json.RawMessage
	last   int  // the rank of the block before
	needed bool // a message has no room for it otherwise
}

// keptTurn returns what is kept of turn i.
func (k *keptParams) keptTurn(i int) keptBlocks {
	if k == nil || i >= len(k.Messages) {
		return keptBlocks{}
	}
	return keptBlocks{turn: k.Messages[i].Content, on: true}
}

// block returns what is kept of block i of the turn.
func (k *keptBlocks) block(i int) *keptBlock {
	if i < len(k.turn) {
		return &k.turn[i]
	}
	return new(keptBlock)
}

// blockRanks is the order of the blocks of a message without a layout.
var blockRanks = map[string]int{anthropic.BlockThinking: 0, anthropic.BlockRedacted: 0, anthropic.BlockText: 1, anthropic.BlockCall: 2}

// add notes that a block, of which n parts, details or calls were made, was converted.
func (k *keptBlocks) add(b *block, kept *keptBlock, n int) {
	typ, raws := b.Type, []json.RawMessage(nil)
	rank, isOfMessage := blockRanks[typ]
	switch {
	case kept.whole != "":
		raws, k.needed = []json.RawMessage{json.RawMessage(kept.whole)}, true
		if n > 0 { // the summary is a text for the models of other servers
			raws[0] = anthropic.Set(raws[0], "content", nil)
		}
	case n == 0:
		return
	case !isOfMessage: // became texts
		typ, rank = anthropic.BlockText, blockRanks[anthropic.BlockText]
		fallthrough
	default:
		entry := json.RawMessage(append(jsonwire.AppendString([]byte(`{"type":`), typ), '}'))
		if c := kept.Citations; c != nil && isOfMessage && !c.IsNull() {
			entry, k.needed = anthropic.Set(entry, "citations", json.RawMessage(*c)), true
		}
		if c := kept.Caller; c != nil && anthropic.IndirectCaller(json.RawMessage(*c)) != nil {
			entry, k.needed = anthropic.Set(entry, "caller", json.RawMessage(*c)), true
		}
		raws = slices.Repeat([]json.RawMessage{entry}, n)
		k.needed = k.needed || rank < k.last
		k.last = rank
	}
	k.layout = append(k.layout, raws...)
}

// keepAssistant notes what a block of the assistant became, since the converter had the given numbers.
func (c *turnConverter) keepAssistant(b *block, kept *keptBlock, before turnCounts) {
	m := &c.assistant
	now := c.counts()
	if b.Type == anthropic.BlockThinking && now.details == before.details && *b.Thinking != "" {
		m.ReasoningDetails = append(m.ReasoningDetails, llm.ReasoningDetail{Type: llm.ReasoningText, Text: *b.Thinking})
		now.details++
	}
	c.kept.add(b, kept, now.parts-before.parts+now.details-before.details+now.calls-before.calls)
}

// keepUser keeps what the parts of a document or a search result, which begin at before, lack.
func (c *turnConverter) keepUser(b *block, kept *keptBlock, before turnCounts) {
	old := c.parts[before.parts:]
	if len(old) == 0 || b.Type != "document" && b.Type != "search_result" {
		return
	}
	header := anthropic.Source{Block: append(jsonwire.AppendString([]byte(`{"type":`), b.Type), '}')}
	var parts llm.Content
	source := b.Source
	if b.Type == "search_result" {
		content, err := contentParts(b.Content, (*block).innerParts)
		if err != nil {
			return // searchResultParts has refused it
		}
		parts = content
		if source != nil {
			header.Block = anthropic.Set(header.Block, "source", jsonwire.AppendString(nil, source.text))
		}
	} else {
		parts = slices.Clone(old)
		if source.Type == "text" {
			parts, header.Text = textParts(source.Data), true
		}
	}
	if len(parts) == 0 {
		return // a search result without content: its title is a text
	}
	title := stringValue(b.Title)
	for _, m := range []struct {
		name  string
		value *raw
	}{{"title", b.Title}, {"context", kept.Context}, {"citations", kept.Citations}} {
		if m.value != nil && !m.value.IsNull() {
			header.Block = anthropic.Set(header.Block, m.name, json.RawMessage(*m.value))
		}
	}
	if title != "" && parts[0].Type != llm.PartFile { // the model of another server sees it too
		parts, header.Title = slices.Insert(parts, 0, llm.TextContent(title)[0]), true
	}
	header.Parts = len(parts)
	for name, value := range old[len(old)-1].Extra { // such as a mark of what to cache
		if name != llm.PartFile {
			setPartExtra(&parts[len(parts)-1], name, value)
		}
	}
	setPartExtra(&parts[0], anthropic.Member, mustMarshal(&header))
	c.parts = append(c.parts[:before.parts], parts...)
}

func setPartExtra(p *llm.Part, name string, value json.RawMessage) {
	p.Extra = jsonwire.MergeExtra(p.Extra, llm.Extra{name: value})
}

// turnCounts are the numbers of what a turnConverter has.
type turnCounts struct{ parts, details, calls int }

func (c *turnConverter) counts() turnCounts {
	return turnCounts{len(c.parts), len(c.assistant.ReasoningDetails), len(c.assistant.ToolCalls)}
}

// keepBlock calls keepAssistant or keepUser for block i, which was converted.
func (c *turnConverter) keepBlock(b *block, i int, before turnCounts) {
	switch {
	case !c.kept.on:
	case c.role == "assistant":
		c.keepAssistant(b, c.kept.block(i), before)
	case c.role == "user":
		c.keepUser(b, c.kept.block(i), before)
	}
}

// setMessage sets the member of the Extra of the message of a turn of the assistant, if it needs one.
func (k *keptBlocks) setMessage(m *llm.Message) {
	if k.needed {
		m.Extra = jsonwire.MergeExtra(m.Extra, llm.Extra{anthropic.Member: mustMarshal(k.layout)})
	}
}

// appendOwn adds the blocks and citations of a delta that only Anthropic's API has. It reports whether there are some.
func (e *encoder) appendOwn(b []byte, d *llm.Delta) ([]byte, bool) {
	member := d.Extra[anthropic.Member]
	if len(member) == 0 || member[0] != '[' {
		return b, false
	}
	member, err := jsonwire.AppendRaw(nil, member) // without line breaks, which end the data of an event
	var elements []json.RawMessage
	if err != nil || json.Unmarshal(member, &elements) != nil || len(elements) == 0 {
		return b, false
	}
	for _, raw := range elements {
		switch typ := anthropic.TypeOf(raw); typ {
		case "":
		case anthropic.BlockCitation:
			if c := anthropic.Get(raw, "citation"); c != nil {
				b = e.blocks.addRawCitation(b, c)
			}
		case anthropic.BlockText:
			e.blocks.endText()
		default:
			if anthropic.IsWhole(typ) {
				b, _ = e.blocks.begin(b, outputBlock{kind: rawBlock, data: string(raw)})
			}
		}
	}
	return b, true
}

// endText makes the text that follows another block.
func (q *blockQueue) endText() {
	if k := q.last(); k != nil && k.kind == textBlock {
		k.cited = true
	}
}

// appendRawStart appends the block k, which another server has sent, as a stream begins it: its input comes in a delta.
func (k *outputBlock) appendRawStart(b []byte) []byte {
	raw := json.RawMessage(k.data)
	if anthropic.Get(raw, "input") != nil {
		raw = anthropic.Set(raw, "input", json.RawMessage("{}"))
	}
	return append(b, raw...)
}

// appendRawInput appends the delta with the input of the open block, which another server has sent.
func (q *blockQueue) appendRawInput(b []byte) []byte {
	input := anthropic.Get(json.RawMessage(q.openBlock().data), "input")
	if len(input) == 0 || string(input) == "{}" {
		return b
	}
	return q.appendDelta(b, "input_json_delta", "partial_json", string(input))
}

// nativeReasons are the stop reasons that chat completions do not have. A Backend yields them as the choice's
// native_finish_reason, which is OpenRouter's name.
var nativeReasons = []string{"pause_turn", "model_context_window_exceeded", "compaction"}

// nativeReason returns the stop reason of a choice if it is one of nativeReasons, or else "".
func nativeReason(c *llm.ChunkChoice) string {
	reason := jsonwire.Text(c.Extra["native_finish_reason"])
	if slices.Contains(nativeReasons, reason) {
		return reason
	}
	return ""
}
