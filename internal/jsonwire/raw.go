package jsonwire

import (
	"encoding/json"
	"slices"
)

// Skip reads the next value and forgets it.
func (d *Decoder) Skip() {
	switch d.Kind() {
	case '"':
		d.scanString()
	case '0':
		d.number()
	case 't':
		d.literal("true")
	case 'f':
		d.literal("false")
	case 'n':
		d.literal("null")
	case '{':
		d.skipObject()
	case '[':
		if d.open('[', "") {
			for i := 0; d.next(i, ']'); i++ {
				d.path[len(d.path)-1].index = i
				d.Skip()
			}
		}
	default:
		d.syntax()
	}
}

// manyNames is the number of names up to which names are compared one by one.
const manyNames = 32

func (d *Decoder) skipObject() {
	if !d.open('{', "") {
		return
	}
	first := len(d.names)
	var set map[string]bool // of all names if there are many
	for n := 0; ; n++ {
		name, ok := d.member(n)
		if !ok {
			break
		}
		if n == manyNames {
			set = make(map[string]bool, 2*manyNames)
			for _, other := range d.names[first:] {
				set[other] = true
			}
		}
		if set[name] || set == nil && slices.Contains(d.names[first:], name) {
			if d.mangled = true; !d.lenient {
				d.duplicate()
			}
		}
		if set == nil {
			d.names = append(d.names, name)
		} else {
			set[name] = true
		}
		d.Skip()
	}
	d.names = d.names[:first]
}

// View reads any value and returns its text, which is part of the document.
func (d *Decoder) View() string {
	d.peek()
	start := d.pos
	d.Skip()
	if d.err != nil {
		return ""
	}
	return d.doc[start:d.pos]
}

// Raw reads any value and returns a copy of its text. Of a lenient decoder it is
// strict JSON nevertheless.
func (d *Decoder) Raw() json.RawMessage {
	d.mangled = false
	text := d.View()
	switch {
	case d.err != nil:
		return nil
	case d.mangled:
		return mend(text)
	}
	return json.RawMessage(text)
}

// keep reads the value of an unknown member into members, which it makes if it
// is nil.
func (d *Decoder) keep(members map[string]json.RawMessage, name string) map[string]json.RawMessage {
	if _, ok := members[name]; ok && !d.lenient {
		d.duplicate()
	}
	if !d.spend() {
		return members
	}
	raw := d.Raw()
	if d.err != nil {
		return members
	}
	if members == nil {
		members = make(map[string]json.RawMessage)
	}
	members[d.own(name)] = raw
	return members
}

// mend returns a value without the duplicate names and broken characters that a
// strict decoder refuses. Of members with the same name it keeps the first.
func mend(value string) json.RawMessage {
	d := Decoder{doc: value, lenient: true}
	return d.appendMended(make([]byte, 0, len(value)))
}

func (d *Decoder) appendMended(b []byte) []byte {
	switch d.Kind() {
	case '"':
		return AppendString(b, d.text())
	case '[':
		b = append(b, '[')
		d.open('[', "")
		for i := 0; d.next(i, ']'); i++ {
			if i > 0 {
				b = append(b, ',')
			}
			b = d.appendMended(b)
		}
		return append(b, ']')
	case '{':
		b = append(b, '{')
		d.open('{', "")
		seen := make(map[string]bool)
		for n := 0; ; n++ {
			name, ok := d.member(n)
			switch {
			case !ok:
				return append(b, '}')
			case seen[name]:
				d.Skip()
				continue
			case n > 0:
				b = append(b, ',')
			}
			seen[name] = true
			b = d.appendMended(append(AppendString(b, name), ':'))
		}
	}
	return append(b, d.View()...)
}
