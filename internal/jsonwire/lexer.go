package jsonwire

import "strings"

// A lexer reads the tokens of a JSON document. Its first error sticks: after it,
// there are no more tokens.
type lexer struct {
	doc     string
	pos     int
	lenient bool
	err     *Error

	// notStrict is set when a lexer or parser has read something that a strict one
	// refuses: text that is not Unicode, or duplicate names.
	notStrict bool

	spaced bool // there was space between tokens
	wide   bool // there was a string that is not ASCII
}

// Failed reports whether there was an error.
func (l *lexer) Failed() bool { return l.err != nil }

// fail sets the error, unless there is one already, and ends reading.
func (l *lexer) fail(e *Error) {
	if l.err == nil {
		l.err = e
	}
	l.pos = len(l.doc)
}

func (l *lexer) failSyntax() { l.fail(&Error{Kind: Syntax}) }

// peek skips space and returns the next byte, or 0 at the end.
func (l *lexer) peek() byte {
	if l.pos < len(l.doc) && l.doc[l.pos] > ' ' { // as in most documents
		return l.doc[l.pos]
	}
	for ; l.pos < len(l.doc); l.pos++ {
		switch c := l.doc[l.pos]; c {
		case ' ', '\t', '\r', '\n':
			l.spaced = true
		default:
			return c
		}
	}
	return 0
}

// Kind returns the kind of the next value: one of '{', '[', '"', '0', 't', 'f'
// and 'n', or 0 if there is no value.
func (l *lexer) Kind() byte {
	switch c := l.peek(); c {
	case '{', '[', '"', 't', 'f', 'n':
		return c
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	return 0
}

// Null reads the next value if it is null, and reports whether it was.
func (l *lexer) Null() bool { return l.peek() == 'n' && l.literal("null") }

// literal reads s, which is true, false or null. It reports false if the document
// continues with something else.
func (l *lexer) literal(s string) bool {
	if !strings.HasPrefix(l.doc[l.pos:], s) {
		l.failSyntax()
		return false
	}
	l.pos += len(s)
	return true
}

// number reads a number and returns its text. The next value is a number.
func (l *lexer) number() string {
	start := l.pos
	l.accept("-")
	if !l.accept("0") {
		l.digits()
	}
	if l.accept(".") {
		l.digits()
	}
	if l.accept("eE") {
		l.accept("+-")
		l.digits()
	}
	return l.doc[start:l.pos]
}

// accept reads one byte if it is one of set.
func (l *lexer) accept(set string) bool {
	if l.pos < len(l.doc) && strings.IndexByte(set, l.doc[l.pos]) >= 0 {
		l.pos++
		return true
	}
	return false
}

// digits reads one or more digits.
func (l *lexer) digits() {
	start := l.pos
	for l.pos < len(l.doc) && '0' <= l.doc[l.pos] && l.doc[l.pos] <= '9' {
		l.pos++
	}
	if l.pos == start {
		l.failSyntax()
	}
}
