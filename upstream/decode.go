package upstream

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A decoder decodes the chunks of one reply, or the whole of it. It takes null,
// missing members and values of an odd type for what they can be meant as.
type decoder struct {
	jsonwire.Decoder
	id, model string          // of the chunk before, to be used again
	problem   json.RawMessage // what is told instead of a reply, or nil
	mender    mender

	likeness likeness
	from, to int // where the content of the chunk being decoded is; to is 0 if it is no string
}

// reset forgets the reply before.
func (d *decoder) reset() {
	d.id, d.model, d.problem = "", "", nil
	d.mender.held = d.mender.held[:0]
	d.likeness.forget()
}

// chunk decodes a chunk, or a whole reply as one. What it returns shares no
// memory with data.
func (d *decoder) chunk(data []byte) (*llmhttp.ChatChunk, error) {
	if c := d.alike(data); c != nil {
		return c, nil
	}
	c, err := d.decode(data)
	if err == nil {
		if len(d.mender.held) > 0 {
			d.mender.join(c, false)
		} else {
			d.learn(data, c)
		}
		return c, nil
	}
	if err.Kind != jsonwire.Syntax {
		return nil, err
	}
	mended, ok := mend(data)
	if !ok {
		return nil, err
	}
	if c, err = d.decode(mended); err != nil {
		return nil, err
	}
	d.mender.join(c, true)
	return c, nil
}

// A oneChoice is a chunk of one choice, as most are.
type oneChoice struct {
	chunk  llmhttp.ChatChunk
	choice [1]llmhttp.ChunkChoice
}

func (d *decoder) decode(data []byte) (*llmhttp.ChatChunk, *jsonwire.Error) {
	v := new(oneChoice)
	c := &v.chunk
	d.Restart(data)
	d.problem, d.to = nil, 0
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "id":
			d.id = d.same(d.id)
			c.ID = d.id
		case "object":
			if d.Kind() != '"' {
				d.Skip()
			} else if string(d.StringView()) == "error" {
				d.problem = bytes.Clone(data) // whose members are those of the error
			}
		case "created":
			c.Created = d.integer()
		case "model":
			d.model = d.same(d.model)
			c.Model = d.model
		case "choices":
			if d.Kind() != '[' {
				d.Skip()
				continue
			}
			c.Choices = v.choice[:0]
			for a := d.Array(); a.Next(); {
				if d.Kind() != '{' {
					d.Skip()
					continue
				}
				c.Choices = append(c.Choices, llmhttp.ChunkChoice{Index: len(c.Choices)})
				d.choice(&c.Choices[len(c.Choices)-1])
			}
		case "usage":
			c.Usage = d.usage()
		case "error":
			if raw := d.RawView(); !slices.Contains(noErrors, string(raw)) {
				d.problem = bytes.Clone(raw)
			}
		default:
			d.keep(&c.Extra, o.Name)
		}
	}
	return c, d.Finish()
}

func (d *decoder) choice(c *llmhttp.ChunkChoice) {
	for o := d.Object(); o.Next(); {
		switch name := string(o.Name); {
		case name == "index":
			d.index(&c.Index)
		case name == "delta", name == "message":
			if d.Kind() != '{' {
				d.Skip()
				continue
			}
			d.delta(&c.Delta, name == "message")
		case name == "finish_reason":
			c.FinishReason = llmhttp.FinishReason(d.same(string(llmhttp.FinishStop)))
		case name == "logprobs" && d.Null(): // which is as good as none
		default:
			d.keep(&c.Extra, o.Name)
		}
	}
}

// delta decodes what is added to a message, or the message if it is whole.
func (d *decoder) delta(to *llmhttp.Delta, whole bool) {
	for o := d.Object(); o.Next(); {
		switch name := string(o.Name); {
		case name == "role":
			d.Skip() // it can only be the assistant's
		case name == "content":
			if d.Kind() == '[' {
				d.to = 0
				d.parts(to)
				continue
			}
			if d.Kind() == '"' {
				d.from = d.Offset() + 1
				to.Content = d.String()
				d.to = d.Offset() - 1
				continue
			}
			d.to = 0
			to.Content = d.text()
		case name == "reasoning_content":
			to.Reasoning += d.text()
		case name == "tool_calls":
			if d.Kind() != '[' {
				d.Skip()
				continue
			}
			for a := d.Array(); a.Next(); {
				if d.Kind() != '{' {
					d.Skip()
					continue
				}
				to.ToolCalls = append(to.ToolCalls, llmhttp.ToolCallDelta{Index: len(to.ToolCalls)})
				d.toolCall(&to.ToolCalls[len(to.ToolCalls)-1], whole)
			}
		case name == "refusal" && d.Null(): // which is as good as none
		default:
			d.keep(&to.Extra, o.Name)
		}
	}
}

// memberParts is where parts of a content go that is no text.
const memberParts = "content_parts"

// parts decodes content that comes in parts, as some servers have it. Replies
// have no place for those that are no text, so they get a member of their own.
func (d *decoder) parts(to *llmhttp.Delta) {
	var others [][]byte
	for a := d.Array(); a.Next(); {
		raw := d.RawView()
		var p llmhttp.Part
		switch err := p.UnmarshalJSON(raw); {
		case err == nil && p.Type == llmhttp.PartText && len(p.Extra) == 0:
			to.Content += p.Text
		case err == nil && p.Type == "" && p.Extra == nil: // null
		default:
			others = append(others, raw)
		}
	}
	if len(others) == 0 {
		return
	}
	if to.Extra == nil {
		to.Extra = make(llmhttp.Extra)
	}
	to.Extra[memberParts] = append(append([]byte{'['}, bytes.Join(others, []byte{','})...), ']')
}

// toolCall decodes what is added to a tool call. In a whole message, calls are
// in their places, whatever index they have.
func (d *decoder) toolCall(t *llmhttp.ToolCallDelta, whole bool) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "index":
			if k := d.Kind(); k != '0' || whole {
				d.Skip()
				continue
			}
			t.Index = d.int()
		case "id":
			t.ID = d.text()
		case "type":
			t.Type = d.same("function")
		case "function":
			if d.Kind() != '{' {
				d.Skip()
				continue
			}
			for f := d.Object(); f.Next(); {
				switch string(f.Name) {
				case "name":
					t.Function.Name = d.text()
				case "arguments":
					// Some write the object instead of its text.
					t.Function.Arguments = d.text()
				default:
					d.keep(&t.Function.Extra, f.Name)
				}
			}
		default:
			d.keep(&t.Extra, o.Name)
		}
	}
}

// usage decodes a usage, or nil if it says nothing.
func (d *decoder) usage() *llmhttp.Usage {
	if d.Kind() != '{' {
		d.Skip()
		return nil
	}
	u := new(llmhttp.Usage)
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "prompt_tokens":
			u.PromptTokens = d.int()
		case "completion_tokens":
			u.CompletionTokens = d.int()
		case "total_tokens":
			u.TotalTokens = d.int()
		default:
			d.keep(&u.Extra, o.Name)
		}
	}
	return reported(u)
}

// reported returns u, or nil if there is nothing above zero in it, which is how
// some servers say that they do not know.
func reported(u *llmhttp.Usage) *llmhttp.Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}

// keep keeps a member that has no field.
func (d *decoder) keep(extra *llmhttp.Extra, name []byte) {
	d.Keep((*map[string]json.RawMessage)(extra), name)
}

// text reads a string. Other values are the text that they are written as, and
// null is none.
func (d *decoder) text() string {
	switch d.Kind() {
	case '"':
		return d.String()
	case 'n':
		d.Null()
		return ""
	}
	return string(d.RawView())
}

// same is like text, but allocates nothing if the text is s.
func (d *decoder) same(s string) string {
	if d.Kind() != '"' {
		return d.text()
	}
	b := d.StringView()
	if string(b) == s {
		return s
	}
	return d.Own(b)
}

// int is like integer, for what is to fit an int.
func (d *decoder) int() int {
	if n := d.integer(); n == int64(int(n)) {
		return int(n)
	}
	return 0
}

// index reads a place among others into to, which is kept if there is none.
func (d *decoder) index(to *int) {
	switch d.Kind() {
	case '0', '"':
		*to = d.int()
	default:
		d.Skip()
	}
}

// maxInteger is up to which size a float64 holds every integer.
const maxInteger = 1 << 53

// integer reads an integer, which may have a fraction or be a string. It is 0
// for what is none.
func (d *decoder) integer() int64 {
	var f float64
	switch d.Kind() {
	case '0':
		raw := d.RawView()
		if len(raw) <= 15 {
			if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
				return n
			}
		}
		f, _ = strconv.ParseFloat(string(raw), 64)
	case '"':
		f, _ = strconv.ParseFloat(string(d.StringView()), 64)
	default:
		d.Skip()
	}
	if !(f > -maxInteger && f < maxInteger) {
		return 0
	}
	return int64(f)
}
