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
	"encoding/json"
	"math"
	"strconv"
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
	// numbers must in JavaScript, and an int.
	maxInt = (1<<53 - 1) & math.MaxInt
)

// A Decoder reads one JSON document. Its first error sticks: after it every
// method returns zero and loops end, so callers check [Decoder.Finish] alone.
type Decoder struct {
	Budget int // what is left to spend on elements and kept members

	// Share lets each [Decoder.Text] of at least so many bytes, if it is not
	// zero, share the document's memory. Shared are those that do: they have no
	// escapes. As long as they are used, the document must not change.
	Share  int
	Shared []string

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

// Restart is like [Decoder.Reset], but cheaper: it does not clear what it can
// leave, so that some of what d read before may be kept alive until a Reset.
func (d *Decoder) Restart(data []byte) {
	d.Budget, d.buf, d.pos, d.depth, d.err, d.block = DefaultBudget, data, 0, 0, nil, nil
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
func (d *Decoder) String() string { return d.string(false) }

// Text reads a string that heeds [Decoder.Share].
func (d *Decoder) Text() string { return d.string(d.Share > 0) }

func (d *Decoder) string(share bool) string {
	if d.peek() != '"' {
		d.want("a string")
		return ""
	}
	raw, escaped := d.scanString()
	if !escaped {
		if share && len(raw) >= d.Share && len(d.Shared) < maxShared {
			d.Shared = append(d.Shared, view(raw))
			return view(raw)
		}
		return d.Own(raw)
	}
	if len(raw) > shortString {
		text := make([]byte, len(raw))
		return view(text[:unescape(text, raw)])
	}
	text := d.room(len(raw))
	n := unescape(text, raw)
	d.block = d.block[:len(d.block)+n]
	return view(text[:n])
}

const (
	// Strings of up to shortString bytes share blocks of blockSize: one
	// that is kept keeps no more than that alive.
	shortString = 256
	blockSize   = 1024

	// maxShared is how many strings may share the document's memory: they are
	// looked for one by one.
	maxShared = 16
)

// Own returns text as a string that does not share the document's memory.
func (d *Decoder) Own(text []byte) string {
	if len(text) == 0 || len(text) > shortString {
		return string(text)
	}
	own := d.room(len(text))
	d.block = d.block[:len(d.block)+copy(own, text)]
	return view(own)
}

// room returns what is next in the block of short strings, which has room for
// n bytes.
func (d *Decoder) room(n int) []byte {
	start := len(d.block)
	if cap(d.block)-start < n {
		start = 0
		d.block = make([]byte, 0, min(blockSize, n+len(d.buf)-d.pos))
	}
	return d.block[start : start+n]
}

// OptString reads a string or null, which is "".
func (d *Decoder) OptString() string {
	if d.Null() {
		return ""
	}
	return d.String()
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
	text := make([]byte, len(raw))
	return text[:unescape(text, raw)]
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
