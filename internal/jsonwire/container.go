package jsonwire

// Members are those of an object.
type Members struct {
	Name []byte // of the member whose value is next; valid as long as the document is

	d     *Decoder
	first int // where the names of this object begin in d.names
	seen  map[string]struct{}
	open  bool
}

// Object begins to read an object. Each member's value must be read before
// the next is asked for.
func (d *Decoder) Object() Members {
	if d.peek() != '{' {
		d.want("an object")
		return Members{d: d}
	}
	if d.depth++; d.depth > MaxDepth {
		d.fail(&Error{Kind: TooDeep, Path: d.Path()})
		return Members{d: d}
	}
	d.pos++
	d.path = append(d.path, step{})
	return Members{d: d, first: len(d.names), open: true}
}

// smallObject is up to how many names are compared one by one.
const smallObject = 32

// Next reads up to the next member's value. It returns false at the end of
// the object and after an error.
func (m *Members) Next() bool {
	d := m.d
	if !m.open {
		return false
	}
	if d.err != nil {
		m.open = false
		return false
	}
	c := d.peek()
	if c == '}' {
		d.pos++
		m.end()
		return false
	}
	count := len(d.names) - m.first
	if count > 0 {
		if c != ',' {
			d.syntax()
			return false
		}
		d.pos++
		c = d.peek()
	}
	if c != '"' {
		d.syntax()
		return false
	}
	name := d.text()
	if d.peek() != ':' {
		d.syntax()
		return false
	}
	d.pos++
	m.Name = name
	d.path[len(d.path)-1].name = name
	if m.duplicate(name, count) {
		d.fail(&Error{Kind: Duplicate, Path: d.Path()})
		return false
	}
	if count == MaxMembers || len(d.names) == 4*MaxMembers {
		d.path[len(d.path)-1].name = nil
		d.fail(&Error{Kind: TooMany, Path: d.parentPath()})
		return false
	}
	d.names = append(d.names, name)
	return true
}

func (m *Members) duplicate(name []byte, count int) bool {
	d := m.d
	if m.seen == nil {
		for _, n := range d.names[m.first:] {
			if string(n) == string(name) {
				return true
			}
		}
		if count < smallObject {
			return false
		}
		if n := len(d.spare); n > 0 {
			m.seen, d.spare = d.spare[n-1], d.spare[:n-1]
		} else {
			m.seen = make(map[string]struct{}, 2*smallObject)
		}
		for _, n := range d.names[m.first:] {
			m.seen[view(n)] = struct{}{}
		}
	}
	before := len(m.seen)
	m.seen[view(name)] = struct{}{}
	return len(m.seen) == before
}

func (m *Members) end() {
	d := m.d
	m.open = false
	d.depth--
	d.names = d.names[:m.first]
	d.path = d.path[:len(d.path)-1]
	if m.seen != nil && len(m.seen) <= 16*smallObject {
		clear(m.seen)
		d.spare = append(d.spare, m.seen)
	}
}

// A Mark is a place in a document.
type Mark struct{ pos int }

// Mark returns where the next value is.
func (d *Decoder) Mark() Mark { return Mark{d.pos} }

// Offset returns how many bytes of the document were read.
func (d *Decoder) Offset() int { return d.pos }

// Find returns the value of the named member of the object at a Mark, as part
// of the document, or nil if there is no such member. Reading goes on where it
// was.
func (d *Decoder) Find(at Mark, name string) (raw []byte) {
	pos := d.pos
	d.pos = at.pos
	for o := d.Object(); o.Next(); {
		if string(o.Name) == name {
			raw = d.RawView()
		} else {
			d.skip()
		}
	}
	if d.err == nil {
		d.pos = pos
	}
	return raw
}

// Elements are those of an array.
type Elements struct {
	d       *Decoder
	n       int
	open    bool
	counted bool
}

// Array begins to read an array, each of whose elements is taken from the
// Budget and must be read before the next is asked for.
func (d *Decoder) Array() Elements { return d.array(true) }

// Sequence is like [Decoder.Array], but leaves the Budget alone: it is for
// arrays whose elements are not kept.
func (d *Decoder) Sequence() Elements { return d.array(false) }

func (d *Decoder) array(counted bool) Elements {
	if d.peek() != '[' {
		d.want("an array")
		return Elements{d: d}
	}
	if d.depth++; d.depth > MaxDepth {
		d.fail(&Error{Kind: TooDeep, Path: d.Path()})
		return Elements{d: d}
	}
	d.pos++
	d.path = append(d.path, step{})
	return Elements{d: d, open: true, counted: counted}
}

// Index returns how many elements came before the current one.
func (a *Elements) Index() int { return a.n - 1 }

// Next reads up to the next element. It returns false at the end of the array
// and after an error.
func (a *Elements) Next() bool {
	d := a.d
	if !a.open {
		return false
	}
	if d.err != nil {
		a.open = false
		return false
	}
	c := d.peek()
	if c == ']' {
		d.pos++
		a.open = false
		d.depth--
		d.path = d.path[:len(d.path)-1]
		return false
	}
	if a.n > 0 {
		if c != ',' {
			d.syntax()
			return false
		}
		d.pos++
	}
	d.path[len(d.path)-1].index = a.n
	a.n++
	if a.counted && !d.spend() {
		return false
	}
	return true
}

// Max fails if the array has come to more than n elements. It is asked before
// an element is read, and counts the rest of the array for the message.
func (a *Elements) Max(n int) bool {
	if a.n <= n {
		return true
	}
	d := a.d
	d.path = d.path[:len(d.path)-1]
	path := d.Path()
	d.path = append(d.path, step{})
	a.counted = false
	d.skip()
	for a.Next() {
		d.skip()
	}
	d.fail(&Error{Kind: TooLong, Path: path, Limit: float64(n), Count: a.n})
	return false
}
