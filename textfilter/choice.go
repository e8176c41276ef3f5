// The texts of a choice in a stream, and of its Extra.

package textfilter

import (
	"maps"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// A choiceFilter is the state of a choice whose texts are filtered.
type choiceFilter struct {
	index          int
	filter         *streamFilter
	ended          bool
	err            error // of the filter; nothing more is filtered
	texts          [texts.PerReply]filteredText
	reasoningAlias bool
	progress       bool            // of the reasoning: see llm.Delta
	details        []*detailFilter // in the order in which they began
	detailsByID    map[detailID]*detailFilter
	unpaused       []*detailFilter // those that the filter was not told to pause; some may hold nothing back
	calls          []*callFilter   // by index
	extra          extraFilter
}

func newChoiceFilter(index int, s *streamFilter) *choiceFilter {
	c := &choiceFilter{index: index, filter: s}
	for i := range c.texts {
		c.texts[i].kind = rewrittenKinds[texts.Kinds[i]]
	}
	return c
}

// repeatedTexts are the members of replies that repeat texts as they were before the filter: log
// probabilities and token numbers. The names are OpenAI's and vLLM's.
var repeatedTexts = []string{membername.Logprobs, "prompt_logprobs", "token_ids", "prompt_token_ids"}

// dropRepeated removes repeatedTexts.
func dropRepeated(e llm.Extra) {
	for _, name := range repeatedTexts {
		delete(e, name)
	}
}

// add filters what choice adds to the choice. If that ends, it adds what was held back.
func (c *choiceFilter) add(choice *llm.ChunkChoice, ends bool) {
	d := &choice.Delta
	out := llm.Delta{Role: d.Role}
	if d.Reasoning != "" {
		c.reasoningAlias, c.progress = d.ReasoningAlias, d.Progress
	}
	to := texts.OfDelta(&out)
	for i, s := range texts.OfDelta(d) {
		*to[i] = c.pass(&c.texts[i], nil, *s, ends)
	}
	out.ReasoningAlias, out.Progress = c.reasoningAlias && out.Reasoning != "", c.progress && out.Reasoning != ""
	out.ReasoningDetails = c.filterDetails(d.ReasoningDetails, ends)
	out.ToolCalls = c.filterCalls(d.ToolCalls, ends)
	out.Extra = c.extra.filter(c, nil, d.Extra, ends)
	*d = out
	choice.StopSequence = c.whole(Other, nil, choice.StopSequence)
	dropRepeated(choice.Extra)
	c.wholeExtra(nil, choice.Extra)
}

// pauseOthers tells the filter that those texts pause of which d has nothing although it has
// something of others. It returns what the filter releases, which comes before d.
func (c *choiceFilter) pauseOthers(d *llm.Delta) (before llm.Delta) {
	if !texts.HasToken(d) {
		return before
	}
	to := texts.OfDelta(&before)
	for i, s := range texts.OfDelta(d) {
		if *s == "" {
			*to[i] = c.pause(&c.texts[i])
		}
	}
	before.ReasoningAlias, before.Progress = c.reasoningAlias && before.Reasoning != "", c.progress && before.Reasoning != ""
	if len(c.unpaused) == 0 {
		return before
	}
	goOn := make(map[detailID]bool)
	for i := range d.ReasoningDetails {
		for _, id := range detailIDs(&d.ReasoningDetails[i]) {
			goOn[id] = goOn[id] || *id.textOf(&d.ReasoningDetails[i]) != ""
		}
	}
	unpaused := c.unpaused
	c.unpaused = c.unpaused[:0]
	for _, f := range unpaused {
		if goOn[f.detailID] {
			c.unpaused = append(c.unpaused, f)
			continue
		}
		f.isUnpaused = false
		before.ReasoningDetails = f.appendText(before.ReasoningDetails, c.pause(&f.text))
	}
	return before
}

// A detailID identifies a text in the details of reasoning.
type detailID struct {
	index   string // as JSON; empty if there is none
	summary bool   // the text is the Summary
}

// detailIDs returns the IDs of the Text and the Summary of d.
func detailIDs(d *llm.ReasoningDetail) [2]detailID {
	index := string(d.Extra[memberIndex])
	return [2]detailID{{index, false}, {index, true}}
}

// textOf returns the text of d that has the ID.
func (id detailID) textOf(d *llm.ReasoningDetail) *string {
	if id.summary {
		return &d.Summary
	}
	return &d.Text
}

// A detailFilter is the state of a text in the details of reasoning, which comes in pieces with the
// same index.
type detailFilter struct {
	detailID
	text       filteredText
	isUnpaused bool                // it is in choiceFilter.unpaused
	last       llm.ReasoningDetail // without texts
	unsent     llm.Extra           // of details of whose texts nothing was released
}

// appendText appends a detail with the text s, unless that is empty.
func (f *detailFilter) appendText(to []llm.ReasoningDetail, s string) []llm.ReasoningDetail {
	if s == "" {
		return to
	}
	d := f.last
	d.Extra = maps.Clone(d.Extra)
	f.sendExtra(&d)
	*f.textOf(&d) = s
	return append(to, d)
}

// sendExtra adds what is unsent to d.
func (f *detailFilter) sendExtra(d *llm.ReasoningDetail) {
	d.Extra = jsonwire.MergeExtra(f.unsent, d.Extra)
	f.unsent = nil
}

// memberIndex is the member of a ReasoningDetail that tells which of them belong together.
const memberIndex = "index"

// filterDetails filters the texts of details. A signature ends a text.
func (c *choiceFilter) filterDetails(details []llm.ReasoningDetail, ends bool) (out []llm.ReasoningDetail) {
	for i := range details {
		d := details[i]
		c.wholeExtra(nil, d.Extra)
		isText := d.Text != "" || d.Summary != ""
		ids := detailIDs(&d)
		d.Text = c.passDetail(&d, ids[0], d.Signature != "")
		d.Summary = c.passDetail(&d, ids[1], false)
		if !isText || d.Text != "" || d.Summary != "" || d.Signature != "" || d.Data != "" {
			out = append(out, d)
		}
	}
	if !ends {
		return out
	}
	for _, f := range c.details {
		out = f.appendText(out, c.pass(&f.text, nil, "", true))
	}
	return out
}

// passDetail passes one of the texts of d to the filter, and returns what it releases.
func (c *choiceFilter) passDetail(d *llm.ReasoningDetail, id detailID, ends bool) string {
	f := c.detailsByID[id]
	if f == nil {
		if *id.textOf(d) == "" {
			return ""
		}
		f = &detailFilter{detailID: id, text: filteredText{kind: Reasoning}}
		if c.detailsByID == nil {
			c.detailsByID = make(map[detailID]*detailFilter)
		}
		c.detailsByID[id] = f
		c.details = append(c.details, f)
	}
	if !f.isUnpaused {
		f.isUnpaused = true
		c.unpaused = append(c.unpaused, f)
	}
	added := *f.textOf(d)
	f.last = llm.ReasoningDetail{Type: d.Type, Extra: maps.Clone(d.Extra)} // the reader gets d
	released := c.pass(&f.text, nil, added, ends)
	switch {
	case ends:
		f.text = filteredText{kind: Reasoning} // another may follow with the same index
		fallthrough
	case released != "":
		f.sendExtra(d)
	case added != "":
		f.unsent = jsonwire.MergeExtra(f.unsent, d.Extra)
	}
	return released
}

// A filteredText is the state of a text of a reply.
type filteredText struct {
	kind   Kind
	held   strings.Builder // so that a text of which all is held back takes linear time
	sent   strings.Builder
	began  bool
	paused bool // the filter was told
}

// pass passes what is added to a text to the filter, and returns what it releases. A text that has
// neither begun nor gets anything is left alone.
func (c *choiceFilter) pass(t *filteredText, call *callFilter, added string, end bool) string {
	if c.err != nil || added == "" && (!end || !t.began) {
		return ""
	}
	t.began, t.paused = true, false
	return c.ask(t, call, added, false, end)
}

// pause tells the filter that another text begins, once until the text goes on.
func (c *choiceFilter) pause(t *filteredText) string {
	if t.held.Len() == 0 || t.paused || c.err != nil {
		return ""
	}
	t.paused = true
	return c.ask(t, nil, "", true, false)
}

// ask calls the filter.
func (c *choiceFilter) ask(t *filteredText, call *callFilter, added string, paused, end bool) string {
	t.held.WriteString(added)
	text := ReplyText{Kind: t.kind, Choice: c.index, Call: -1, Sent: t.sent.String(), Text: t.held.String(), Paused: paused, End: end}
	if call != nil {
		text.Call, text.Tool = call.index, call.tool
	}
	release, hold, err := c.filter.f(&text)
	if err != nil {
		c.err = err
		return ""
	}
	if end {
		release, hold = release+hold, ""
	}
	c.filter.held += len(hold) - (t.held.Len() - len(added))
	if c.filter.held > maxHeld {
		c.err = invalid.ReplyTooLarge(maxHeld)
		return ""
	}
	if release != "" || hold != text.Text {
		t.held.Reset()
		t.held.WriteString(hold)
	}
	t.sent.WriteString(release)
	return release
}

// whole passes a text that comes whole to the filter.
func (c *choiceFilter) whole(kind Kind, call *callFilter, s string) string {
	if s == "" || kind == Other && isMedia(s) {
		return s
	}
	return c.pass(&filteredText{kind: kind}, call, s, true)
}
