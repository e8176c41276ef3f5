package jsonwire

import "slices"

// A parser reads arrays and objects, and skips values. It keeps the path to the value
// that is being read.
type parser struct {
	lexer
	path    []step
	names   []string // member names of the objects that are being skipped, innermost last
	members int      // number of members, so far, of the objects that are being read
	most    int      // the maximum of read; 0 is no bound
	read    int      // number of members and elements that were read, unless most is 0
}

// end returns the first error, which may be that something follows the value.
func (p *parser) end() *Error {
	if p.peek(); p.err == nil && p.pos < len(p.doc) {
		p.failSyntax()
	}
	return p.err
}

// Path returns the path to the value that is read, such as "messages[1].role".
func (p *parser) Path() string { return formatPath(p.path) }

// parentPath returns the path to the array or object around the value that is read.
func (p *parser) parentPath() string { return formatPath(p.path[:len(p.path)-1]) }

// failHere fails with an error about the value that is read.
func (p *parser) failHere(e *Error) {
	e.Path = p.Path()
	p.fail(e)
}

// foundDuplicate is called for an object with two members of the same name.
func (p *parser) foundDuplicate() {
	p.notStrict = true
	if !p.lenient {
		p.failHere(&Error{Kind: Duplicate})
	}
}

// open reads the bracket or brace that an array or object begins with. It reports
// false if that is nested too deep.
func (p *parser) open() bool {
	if len(p.path) == MaxDepth {
		p.fail(&Error{Kind: TooDeep})
		return false
	}
	p.pos++
	p.path = append(p.path, step{index: -1})
	return true
}

// next reads up to the next member or element of the innermost array or object, of
// which n were read. It reports false at the end, which it reads, and after an error.
func (p *parser) next(n int, bracket byte) bool {
	if p.err != nil {
		return false
	}
	switch c := p.peek(); {
	case c == bracket:
		p.pos++
		p.path = p.path[:len(p.path)-1]
		return false
	case n == 0:
	case c != ',':
		p.failSyntax()
		return false
	default:
		p.pos++
	}
	return p.most == 0 || p.countRead()
}

// countRead counts a member or an element. It reports false if the document has too many.
func (p *parser) countRead() bool {
	if p.read++; p.read > p.most {
		p.fail(&Error{Kind: TooManyValues})
		return false
	}
	return true
}

// member reads up to the value of the next member of the innermost object, of which n
// were read, and returns its name. It reports false at the end of the object and after
// an error.
func (p *parser) member(n int) (name string, ok bool) {
	if !p.next(n, '}') {
		p.members -= n
		return "", false
	}
	if p.peek() != '"' {
		p.failSyntax()
		return "", false
	}
	name = p.text()
	if p.peek() != ':' {
		p.failSyntax()
		return "", false
	}
	p.pos++
	if p.members++; !p.lenient && (n == MaxMembers || p.members > 4*MaxMembers) {
		p.fail(&Error{Kind: TooManyMembers, Path: p.parentPath()})
		return "", false
	}
	p.path[len(p.path)-1].name = name
	return name, true
}

// peekMember returns the string that the next value has as its member name, or "" if
// it has no such member. It does not consume the value.
func (p *parser) peekMember(name string) string {
	if p.peek() != '{' || p.err != nil {
		return ""
	}
	ahead := parser{lexer: lexer{doc: p.doc, pos: p.pos, lenient: true}, path: make([]step, 0, 8)}
	ahead.open()
	for n := 0; ; n++ {
		switch member, ok := ahead.member(n); {
		case !ok:
			return ""
		case member != name:
			ahead.Skip()
		case ahead.peek() == '"':
			return ahead.text()
		default:
			return ""
		}
	}
}

// View reads any value and returns its text, which is part of the document.
func (p *parser) View() string {
	p.peek()
	start := p.pos
	p.Skip()
	if p.err != nil {
		return ""
	}
	return p.doc[start:p.pos]
}

// Skip reads any value.
func (p *parser) Skip() {
	switch p.Kind() {
	case '"':
		p.scanString()
	case '0':
		p.number()
	case 't':
		p.literal("true")
	case 'f':
		p.literal("false")
	case 'n':
		p.literal("null")
	case '{':
		p.skipObject()
	case '[':
		p.skipArray()
	default:
		p.failSyntax()
	}
}

// skipArray reads an array.
func (p *parser) skipArray() {
	if !p.open() {
		return
	}
	for i := 0; p.next(i, ']'); i++ {
		p.path[len(p.path)-1].index = i
		p.Skip()
	}
}

// manyNames is the number of names up to which names are compared one by one.
const manyNames = 32

// An objectNames has the names of the members of an object.
type objectNames struct {
	first int             // where they begin in parser.names
	set   map[string]bool // all of them, if there are many
}

// beginNames is called at the beginning of an object whose names must differ.
func (p *parser) beginNames() objectNames { return objectNames{first: len(p.names)} }

// endNames is called at the end of the object.
func (p *parser) endNames(o *objectNames) { p.names = p.names[:o.first] }

// checkName adds the name of member n, and fails if another member has it.
func (p *parser) checkName(o *objectNames, n int, name string) {
	if n == manyNames {
		o.set = make(map[string]bool, 2*manyNames)
		for _, other := range p.names[o.first:] {
			o.set[other] = true
		}
	}
	if o.set[name] || o.set == nil && slices.Contains(p.names[o.first:], name) {
		p.foundDuplicate()
	}
	if o.set == nil {
		p.names = append(p.names, name)
	} else {
		o.set[name] = true
	}
}

// skipObject reads an object, whose names must differ.
func (p *parser) skipObject() {
	if !p.open() {
		return
	}
	names := p.beginNames()
	for n := 0; ; n++ {
		name, ok := p.member(n)
		if !ok {
			break
		}
		p.checkName(&names, n, name)
		p.Skip()
	}
	p.endNames(&names)
}
