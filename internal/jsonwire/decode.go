// Package jsonwire reads and writes JSON the way a public API must: strictly,
// in one pass, and with errors that name the member at fault.
//
// Reading refuses what encoding/json lets pass: duplicate names, invalid
// UTF-8, unpaired surrogates, names in the wrong case (they are simply other
// names) and nesting deep enough to hurt. It is driven by the caller's types,
// so nothing is reflected over and nothing is kept that the caller did not ask
// for.
package jsonwire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

const (
	// MaxDepth is how deep arrays and objects may nest.
	MaxDepth = 512

	// MaxMembers is how many members one object may have. Objects that are in
	// one another may have four times as many together.
	MaxMembers = 16384

	// DefaultBudget is how many array elements and kept members a document
	// may have in all, where the caller sets no other [Decoder.Budget].
	DefaultBudget = 1 << 16

	// maxInt bounds integers to those that survive a float64, as JSON
	// numbers must in JavaScript.
	maxInt = 1<<53 - 1
)

// A Decoder reads one JSON document. Its first error sticks: after it every
// method returns zero and loops end, so callers check [Decoder.Finish] alone.
type Decoder struct {
	Budget int // what is left to spend on elements and kept members

	buf   []byte
	pos   int
	depth int
	err   *Error
	path  []step
	names [][]byte              // of the objects being read, innermost last
	spare []map[string]struct{} // empty maps for large objects
	block []byte                // what short strings are copied to

	// Where path and names begin: enough for most documents.
	pathSpace [12]step
	nameSpace [32][]byte
}

// A step of the path to a value: a member if name is not nil, else an element.
type step struct {
	name  []byte
	index int
}

// NewDecoder returns a Decoder that reads data, which must not change until
// [Decoder.Finish] has returned. What the Decoder returns is copied from data,
// unless it says otherwise.
func NewDecoder(data []byte) *Decoder {
	d := new(Decoder)
	d.Reset(data)
	return d
}

// Reset makes d as [NewDecoder] would return it.
func (d *Decoder) Reset(data []byte) {
	*d = Decoder{Budget: DefaultBudget, buf: data}
	d.path, d.names = d.pathSpace[:0], d.nameSpace[:0]
}

// Finish checks that nothing but space follows and returns the first error.
func (d *Decoder) Finish() *Error {
	if d.err == nil {
		d.space()
		if d.pos != len(d.buf) {
			d.syntax()
		}
	}
	return d.err
}

// Failed reports whether an error has occurred.
func (d *Decoder) Failed() bool { return d.err != nil }

func (d *Decoder) fail(e *Error) {
	if d.err == nil {
		d.err = e
	}
	d.pos = len(d.buf)
}

func (d *Decoder) syntax() { d.fail(&Error{Kind: Syntax}) }

func (d *Decoder) space() {
	for d.pos < len(d.buf) {
		switch d.buf[d.pos] {
		case ' ', '\n', '\t', '\r':
			d.pos++
		default:
			return
		}
	}
}

// peek returns the first byte of the next value or token, or 0 at the end.
func (d *Decoder) peek() byte {
	// Compact JSON, which most clients send, has no space here.
	if d.pos < len(d.buf) {
		if c := d.buf[d.pos]; c > ' ' {
			return c
		}
	}
	d.space()
	if d.pos < len(d.buf) {
		return d.buf[d.pos]
	}
	return 0
}

// Kind tells what value comes next, by its first byte: one of the letters
// of "{[\"0tfn". It is 0 for anything that begins no value.
func (d *Decoder) Kind() byte {
	switch c := d.peek(); c {
	case '{', '[', '"', 't', 'f', 'n':
		return c
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	return 0
}

// want fails with a type error for the next value, or with a syntax error
// if there is none or it is broken.
func (d *Decoder) want(what string) {
	if d.err != nil {
		return
	}
	got := d.describe()
	path := d.Path()
	d.skip()
	d.fail(&Error{Kind: Type, Path: path, Want: what, Got: got})
}

// Mismatch reports that the next value is not what was wanted, which is
// given with its article: "a string".
func (d *Decoder) Mismatch(want string) { d.want(want) }

// Invalid reports that the value last read is not what was wanted, both given
// with their articles.
func (d *Decoder) Invalid(want, got string) {
	d.fail(&Error{Kind: Type, Path: d.Path(), Want: want, Got: got})
}

// Missing reports that the object last read lacks the named member.
func (d *Decoder) Missing(name string) {
	path := d.Path()
	if path != "" {
		path += "."
	}
	d.fail(&Error{Kind: Missing, Path: path + name})
}

func (d *Decoder) describe() string {
	switch d.Kind() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	case '0':
		for _, c := range d.buf[d.pos:] {
			switch c {
			case '.', 'e', 'E':
				return "a decimal number"
			case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
				continue
			}
			break
		}
		return "an integer"
	}
	return ""
}

func (d *Decoder) literal(s string) bool {
	if len(d.buf)-d.pos >= len(s) && string(d.buf[d.pos:d.pos+len(s)]) == s {
		d.pos += len(s)
		return true
	}
	d.syntax()
	return false
}

// Null consumes a null and reports whether there was one.
func (d *Decoder) Null() bool {
	return d.peek() == 'n' && d.literal("null")
}

// Bool reads a boolean; null counts as false.
func (d *Decoder) Bool() bool {
	switch d.peek() {
	case 't':
		return d.literal("true")
	case 'f':
		d.literal("false")
	case 'n':
		d.literal("null")
	default:
		d.want("a boolean")
	}
	return false
}

// number reads a number's text, which is part of the document.
func (d *Decoder) number() []byte {
	i, b := d.pos, d.buf
	digits := func() bool {
		start := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		d.syntax()
		return nil
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			d.syntax()
			return nil
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			d.syntax()
			return nil
		}
	}
	text := b[d.pos:i]
	d.pos = i
	return text
}

// Float reads a number.
func (d *Decoder) Float() float64 {
	if d.Kind() != '0' {
		d.want("a number")
		return 0
	}
	text := d.number()
	if d.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(view(text), 64)
	if err != nil {
		d.outOfRange(text, "decimal", math.MaxFloat64)
		return 0
	}
	return f
}

// Int reads an integer, which may be written with an exponent or a fraction
// of zero. It must be one that a float64 can hold exactly.
func (d *Decoder) Int() int {
	if d.Kind() != '0' {
		d.want("an integer")
		return 0
	}
	text := d.number()
	if d.err != nil {
		return 0
	}
	if len(text) <= 15 {
		if n, err := strconv.Atoi(view(text)); err == nil {
			return n
		}
	}
	f, err := strconv.ParseFloat(view(text), 64)
	if err != nil || math.Abs(f) > maxInt {
		d.outOfRange(text, "integer", maxInt)
		return 0
	}
	if f != math.Trunc(f) {
		d.fail(&Error{Kind: Type, Path: d.Path(), Want: "an integer", Got: "a decimal number"})
		return 0
	}
	return int(f)
}

func (d *Decoder) outOfRange(text []byte, noun string, limit float64) {
	e := &Error{Kind: Range, Path: d.Path(), Noun: noun, Limit: limit, Above: text[0] != '-', Got: clip(string(text), 24)}
	if !e.Above {
		e.Limit = -limit
	}
	d.fail(e)
}

// Numbers is memory for the numbers of one object that may be left out.
type Numbers struct {
	ints   [3]int
	floats [4]float64
	i, f   int
}

// IntPtr reads an integer or null, which is nil. It may use *n, which it makes
// if it is nil.
func (d *Decoder) IntPtr(n **Numbers) *int {
	if d.Null() {
		return nil
	}
	if *n == nil {
		*n = new(Numbers)
	}
	if k := (*n).i; k < len((*n).ints) {
		(*n).i++
		(*n).ints[k] = d.Int()
		return &(*n).ints[k]
	}
	i := d.Int()
	return &i
}

// FloatPtr is to numbers what [Decoder.IntPtr] is to integers.
func (d *Decoder) FloatPtr(n **Numbers) *float64 {
	if d.Null() {
		return nil
	}
	if *n == nil {
		*n = new(Numbers)
	}
	if k := (*n).f; k < len((*n).floats) {
		(*n).f++
		(*n).floats[k] = d.Float()
		return &(*n).floats[k]
	}
	f := d.Float()
	return &f
}

// String reads a string.
func (d *Decoder) String() string { return d.Own(d.StringView()) }

const (
	// Strings of up to shortString bytes share blocks of blockSize: one
	// that is kept keeps no more than that alive.
	shortString = 256
	blockSize   = 1024
)

// Own returns text as a string that does not share the document's memory.
func (d *Decoder) Own(text []byte) string {
	if len(text) == 0 || len(text) > shortString {
		return string(text)
	}
	start := len(d.block)
	if cap(d.block)-start < len(text) {
		start = 0
		d.block = make([]byte, 0, min(blockSize, len(text)+len(d.buf)-d.pos))
	}
	d.block = append(d.block, text...)
	return view(d.block[start:])
}

// OptString reads a string or null, which is "".
func (d *Decoder) OptString() string {
	if d.Null() {
		return ""
	}
	return d.Own(d.StringView())
}

// StringView reads a string and returns its text, which is only valid as long
// as the document is.
func (d *Decoder) StringView() []byte {
	if d.peek() != '"' {
		d.want("a string")
		return nil
	}
	return d.text()
}

// text reads the string that begins at d.pos and returns its text: a part of
// the document unless there were escapes.
func (d *Decoder) text() []byte {
	raw, escaped := d.scanString()
	if !escaped {
		return raw
	}
	return unescape(raw)
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special has the high bit set in each byte of x that is a quote, a backslash
// or a control character. Bytes above the first such one may be wrong.
func special(x uint64) uint64 {
	return ((x - lows*0x20) | ((x ^ lows*'"') - lows) | ((x ^ lows*'\\') - lows)) &^ x & highs
}

// scanString checks the string that begins at d.pos and returns what is
// between its quotes.
func (d *Decoder) scanString() (raw []byte, escaped bool) {
	b := d.buf
	start := d.pos + 1
	i := start
	var wide uint64 // has a high bit if any byte was not ASCII
	for {
		// Images come as strings of a megabyte: those go four words at a time.
		for len(b)-i >= 32 {
			p := b[i : i+32 : i+32]
			x0, x1 := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
			x2, x3 := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
			if special(x0)|special(x1)|special(x2)|special(x3) != 0 {
				break
			}
			wide |= x0 | x1 | x2 | x3
			i += 32
		}
		for len(b)-i >= 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			wide |= x
			if s := special(x); s != 0 {
				// Bytes behind the closing quote may set wide for nothing: that
				// only costs a second look.
				i += bits.TrailingZeros64(s) >> 3
				goto found
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			wide |= uint64(b[i])
			i++
		}
		if i >= len(b) {
			d.syntax()
			return nil, false
		}
	found:
		switch b[i] {
		case '"':
			raw = b[start:i]
			d.pos = i + 1
			if wide&highs != 0 && !utf8.Valid(raw) {
				d.syntax()
				return nil, false
			}
			return raw, escaped
		case '\\':
			escaped = true
			n := escapeLen(b[i:])
			if n == 0 {
				d.syntax()
				return nil, false
			}
			i += n
		default:
			d.syntax()
			return nil, false
		}
	}
}

// escapeLen returns the length of the escape sequence, a pair of surrogates
// being one, that b begins with, or 0 if it is broken.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r := hex4(b)
		if r < 0 {
			return 0
		}
		if !utf16.IsSurrogate(r) {
			return 6
		}
		if len(b) >= 12 && utf16.DecodeRune(r, hex4(b[6:])) != utf8.RuneError {
			return 12
		}
	}
	return 0
}

// hex4 returns the code unit of the \uXXXX that b begins with, or -1.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape resolves the escapes of raw, which scanString has checked.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(out, raw...)
		}
		out = append(out, raw[:i]...)
		raw = raw[i:]
		n := 2
		switch c := raw[1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(raw)
			n = 6
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(raw[6:]))
				n = 12
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
		raw = raw[n:]
	}
}

// Raw reads any value and returns a copy of its text.
func (d *Decoder) Raw() json.RawMessage {
	return bytes.Clone(d.RawView())
}

// RawView is like Raw, but what it returns is part of the document.
func (d *Decoder) RawView() []byte {
	d.peek()
	start := d.pos
	d.skip()
	if d.err != nil {
		return nil
	}
	return d.buf[start:d.pos]
}

// Skip reads any value and forgets it.
func (d *Decoder) Skip() { d.skip() }

func (d *Decoder) skip() {
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
		for m := d.Object(); m.Next(); {
			d.skip()
		}
	case '[':
		for a := d.array(false); a.Next(); {
			d.skip()
		}
	default:
		d.syntax()
	}
}

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

// spend takes one from the Budget.
func (d *Decoder) spend() bool {
	if d.Budget--; d.Budget < 0 {
		d.fail(&Error{Kind: TooMany, Path: ""})
		return false
	}
	return true
}

// Keep reads the value of the member of the given name into extra, which it
// makes if it is nil.
func (d *Decoder) Keep(extra *map[string]json.RawMessage, name []byte) {
	if !d.spend() {
		return
	}
	key := d.Own(name)
	raw := d.Raw()
	if d.err != nil {
		return
	}
	if *extra == nil {
		*extra = make(map[string]json.RawMessage)
	}
	(*extra)[key] = raw
}

// Path returns the path to the value being read, such as "messages[1].role".
func (d *Decoder) Path() string { return formatPath(d.path) }

func (d *Decoder) parentPath() string { return formatPath(d.path[:len(d.path)-1]) }

func formatPath(path []step) string {
	var b []byte
	for _, s := range path {
		if s.name == nil {
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(s.index), 10)
			b = append(b, ']')
			continue
		}
		if len(b) > 0 {
			b = append(b, '.')
		}
		b = append(b, clip(string(s.name), 64)...)
		if len(b) > 256 {
			break
		}
	}
	return string(b)
}

// clip shortens s to about n bytes and drops what is not printable.
func clip(s string, n int) string {
	out := make([]byte, 0, min(len(s), n+4))
	for _, r := range s {
		if len(out) >= n {
			return string(append(out, "..."...))
		}
		if strconv.IsPrint(r) {
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}

// view returns a string that shares b's memory.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
