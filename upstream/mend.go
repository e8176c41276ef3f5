package upstream

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Servers that cut texts by UTF-16 units, as those in JavaScript do, cut
// characters in two: one chunk ends with "\ud83d" and the next begins with
// "\ude42". Neither is a character, and a strict reader of JSON takes neither.
// mend puts a stand-in in the place of each half, and a mender makes them whole
// again in the texts of the chunks.

const (
	firstHalf = 0xd800 // the first of the first halves
	firstLow  = 0xdc00 // the first of the second halves
	lastHalf  = 0xdfff

	// standIn is the stand-in for firstHalf; the others follow. They are for
	// private use. What has a character of their plane itself is mended without
	// them, and so loses its halves.
	standIn     = 0x10f000
	privateLead = 0xf4 // the first byte of a character of the plane in UTF-8
)

// privateEscape is what a character of the plane begins with in an escape.
var privateEscape = []byte(`\udbf`)

// mend returns data with a stand-in for each half of a character, and U+FFFD
// for bytes that are not UTF-8. It reports whether there was any of it.
func mend(data []byte) (mended []byte, ok bool) {
	lossy := bytes.IndexByte(data, privateLead) >= 0 || bytes.Contains(bytes.ToLower(data), privateEscape)
	out := make([]byte, 0, len(data)+16)
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '\\' && i+1 < len(data):
			n, half := escapeLen(data[i:])
			switch {
			case half < 0:
				out = append(out, data[i:i+n]...)
			case lossy:
				out, ok = utf8.AppendRune(out, utf8.RuneError), true
			default:
				out, ok = utf8.AppendRune(out, standIn+half-firstHalf), true
			}
			i += n
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, size := utf8.DecodeRune(data[i:])
			ok = ok || r == utf8.RuneError && size == 1
			out = utf8.AppendRune(out, r)
			i += size
		}
	}
	return out, ok
}

// escapeLen returns the length of the escape sequence that b begins with, and
// which half of a character it is, or -1 if it is none.
func escapeLen(b []byte) (n int, half rune) {
	r := codeUnit(b)
	switch {
	case r < 0:
		return 2, -1
	case !utf16.IsSurrogate(r):
		return 6, -1
	case utf16.DecodeRune(r, codeUnit(b[6:])) != utf8.RuneError:
		return 12, -1
	}
	return 6, r
}

// codeUnit returns that of the \uXXXX that b begins with, or -1.
func codeUnit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// halfOf returns the half of a character that r stands in for, or -1.
func halfOf(r rune) rune {
	if r < standIn || r > standIn+lastHalf-firstHalf {
		return -1
	}
	return r - standIn + firstHalf
}

// A mender holds the first halves of characters until the second ones come.
type mender struct{ held []heldHalf }

// maxHeld bounds the texts that a mender holds halves of: more than there are
// choices in a request.
const maxHeld = 256

// A heldHalf is the first half of a character that a text ended with.
type heldHalf struct {
	textID
	half rune
}

// A textID says which of a reply's texts one is.
type textID struct {
	choice int
	member string
	call   int // its index, for arguments
}

// join makes the characters whole that c has the halves of, and holds those
// that its texts end with. mended says that c has stand-ins.
func (m *mender) join(c *llmhttp.ChatChunk, mended bool) {
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		feed := func(s *string, member string, call int) {
			*s = m.feed(*s, textID{choice.Index, member, call}, mended, choice.FinishReason != "")
		}
		feed(&d.Content, "content", 0)
		feed(&d.Reasoning, "reasoning_content", 0)
		for j := range d.ToolCalls {
			t := &d.ToolCalls[j]
			feed(&t.Function.Arguments, "arguments", t.Index)
			clean(t.Extra, mended)
			clean(t.Function.Extra, mended)
		}
		for member, raw := range d.Extra {
			if raw[0] != '"' {
				continue
			}
			s := jsonwire.NewDecoder(raw).String()
			feed(&s, member, 0)
			d.Extra[member] = jsonwire.AppendString(nil, s)
		}
		clean(d.Extra, mended)
		clean(choice.Extra, mended)
	}
	clean(c.Extra, mended)
}

// clean replaces the stand-ins that are left in e by U+FFFD.
func clean(e llmhttp.Extra, mended bool) {
	if !mended {
		return
	}
	for member, raw := range e {
		e[member] = json.RawMessage(bytes.Map(func(r rune) rune {
			if halfOf(r) >= 0 {
				return utf8.RuneError
			}
			return r
		}, raw))
	}
}

// feed returns what s, which is the last of its text if last is true, adds to
// the text of the given ID.
func (m *mender) feed(s string, id textID, mended, last bool) string {
	if s == "" && !last {
		return s
	}
	var high rune // a first half
	if i := slices.IndexFunc(m.held, func(h heldHalf) bool { return h.textID == id }); i >= 0 {
		high = m.held[i].half
		m.held = slices.Delete(m.held, i, i+1)
	}
	if high == 0 && !mended {
		return s
	}
	out := make([]byte, 0, len(s)+utf8.UTFMax)
	for _, r := range s {
		half := rune(-1)
		if mended {
			half = halfOf(r)
		}
		if high != 0 {
			if half >= firstLow {
				r, half = utf16.DecodeRune(high, half), -1
			} else {
				out = utf8.AppendRune(out, utf8.RuneError)
			}
			high = 0
		}
		switch {
		case half < 0:
			out = utf8.AppendRune(out, r)
		case half < firstLow:
			high = half
		default:
			out = utf8.AppendRune(out, utf8.RuneError)
		}
	}
	if high != 0 {
		if last || len(m.held) >= maxHeld {
			out = utf8.AppendRune(out, utf8.RuneError)
		} else {
			m.held = append(m.held, heldHalf{id, high})
		}
	}
	return string(out)
}
