// Package reasoning merges the two forms in which a Backend may yield the reasoning of
// a reply.
package reasoning

import "bytes"

// A Merger drops the reasoning of a reply that a Backend yields twice. The zero value is
// ready to use.
//
// A Backend may yield the same reasoning as text and in details, together or one after
// the other, split at different places. Text that has come from only one of these two
// sources is kept until the other source repeats it.
type Merger struct {
	text, details []byte // from this source, and not yet from the other
	index         []byte // the index of the last detail that had text
}

// FromText returns the part of text that is new.
func (m *Merger) FromText(text string) string {
	return withoutRepetition(text, &m.text, &m.details)
}

// FromDetails returns the part of the text of a detail that is new.
func (m *Merger) FromDetails(text string) string {
	return withoutRepetition(text, &m.details, &m.text)
}

// withoutRepetition returns text without what it repeats of the other source.
func withoutRepetition(text string, own, other *[]byte) string {
	n := min(len(text), len(*other))
	if text[:n] != string((*other)[:n]) {
		n = 0
	}
	*other = (*other)[n:]
	*own = append(*own, text[n:]...)
	return text[n:]
}

// SetIndex sets the index of the detail whose text is new. It reports whether the index of
// the detail before it was another one, so that another text begins: all parts of one text
// have the same index.
func (m *Merger) SetIndex(index []byte) (changed bool) {
	changed = m.index != nil && !bytes.Equal(m.index, index)
	m.index = append(m.index[:0], index...)
	return changed
}
