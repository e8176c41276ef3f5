package jsonwire

import (
	"encoding/json"
	"strings"
)

// Raw reads any value and returns a copy of its text. The copy of a lenient Decoder is
// strict JSON too.
func (d *Decoder) Raw() json.RawMessage {
	d.notStrict = false
	text := d.View()
	switch {
	case d.err != nil:
		return nil
	case d.notStrict:
		p := parser{lexer: lexer{doc: text, lenient: true}}
		return p.appendStrict(make([]byte, 0, len(text)))
	}
	return json.RawMessage(text)
}

// appendStrict appends the next value without the duplicate names and invalid
// characters that a strict parser refuses. Of members with the same name it keeps the
// first.
func (p *parser) appendStrict(b []byte) []byte {
	switch p.Kind() {
	case '"':
		return AppendString(b, p.text())
	case '[':
		b = append(b, '[')
		p.open()
		for i := 0; p.next(i, ']'); i++ {
			if i > 0 {
				b = append(b, ',')
			}
			b = p.appendStrict(b)
		}
		return append(b, ']')
	case '{':
		b = append(b, '{')
		p.open()
		seen := make(map[string]bool)
		for n := 0; ; n++ {
			name, ok := p.member(n)
			switch {
			case !ok:
				return append(b, '}')
			case seen[name]:
				p.Skip()
				continue
			case n > 0:
				b = append(b, ',')
			}
			seen[name] = true
			b = p.appendStrict(append(AppendString(b, name), ':'))
		}
	}
	return append(b, p.View()...)
}

const (
	sharedSize  = 4 << 10 // the size in bytes up to which a document counts as small
	sharedRatio = 4       // a string that is at least 1/sharedRatio of a document counts as a large part of it
)

// detach returns text, which may be part of doc, for use after decoding. A text that
// shares the memory of doc keeps all of it from being freed. So detach copies text, unless
// doc is small or text is a large part of it.
func detach(doc, text string) string {
	if len(doc) <= sharedSize || len(doc)/sharedRatio <= len(text) {
		return text
	}
	return strings.Clone(text)
}
