package jsonwire

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Bounds on what a document may contain besides its size in bytes. They keep a
// small document from becoming much memory.
const (
	MaxDepth   = 512     // nested arrays and objects
	MaxMembers = 16384   // of an object; objects within one another may have four times as many. Not for lenient decoders.
	MaxValues  = 1 << 16 // elements of arrays that are decoded, and members that are kept

	// MaxInteger bounds integers to those that survive a float64, as JSON
	// numbers must in JavaScript, and an int.
	MaxInteger = (1<<53 - 1) & math.MaxInt
)

// A Decoder reads one JSON document. Its first error sticks: after it, all methods
// return zero values.
type Decoder struct {
	doc     string
	pos     int
	lenient bool
	err     *Error

	path    []step   // of the value that is read
	names   []string // of the objects that are skipped, innermost last
	values  int      // of MaxValues, how many the document may still have
	members int      // of the objects that are open

	// mangled is set when a lenient decoder has skipped what is not strict JSON:
	// duplicate names or characters that are not Unicode.
	mangled bool
}

var decoders = sync.Pool{New: func() any { return new(Decoder) }}

// Unmarshal decodes data strictly into *v, which is zero.
func Unmarshal[V any](data []byte, t Type[V], v *V) *Error {
	return unmarshal(string(data), false, t, v)
}

// UnmarshalLenient decodes data into *v, which is zero. It accepts what other
// programs get wrong:
//
//   - Of members with the same name the last counts, and the first in what is kept
//     undecoded.
//   - Bytes that are not UTF-8, and halves of surrogate pairs, become U+FFFD.
//   - An integer may have a fraction or be in a string. Other numbers and
//     strings count as 0, and other values change nothing.
//   - Where a string is expected, another value counts as its JSON text.
//   - Where a boolean is expected, another value counts as false.
//   - Where an object or an array is expected, another value is skipped.
func UnmarshalLenient[V any](data []byte, t Type[V], v *V) *Error {
	return unmarshal(string(data), true, t, v)
}

func unmarshal[V any](doc string, lenient bool, t Type[V], v *V) *Error {
	d := decoders.Get().(*Decoder)
	d.doc, d.lenient, d.values = doc, lenient, MaxValues
	t.Decode(d, v)
	err := d.end()
	if cap(d.path) <= 64 && cap(d.names) <= 1024 {
		clear(d.path[:cap(d.path)])
		clear(d.names[:cap(d.names)])
		*d = Decoder{path: d.path[:0], names: d.names[:0]}
		decoders.Put(d)
	}
	return err
}

// end returns the first error, which may be that another document follows.
func (d *Decoder) end() *Error {
	if d.peek(); d.err == nil && d.pos < len(d.doc) {
		d.syntax()
	}
	return d.err
}

// Lenient reports whether d was started by [UnmarshalLenient].
func (d *Decoder) Lenient() bool { return d.lenient }

// Failed reports whether there was an error.
func (d *Decoder) Failed() bool { return d.err != nil }

// Fail ends decoding with an error about the value that is read.
func (d *Decoder) Fail(err error) { d.fail(&Error{Kind: Other, Path: d.Path(), Err: err}) }

func (d *Decoder) fail(e *Error) {
	if d.err == nil {
		d.err = e
	}
	d.pos = len(d.doc)
}

func (d *Decoder) syntax() { d.fail(&Error{Kind: Syntax}) }

// notUnicode is called for text that is not Unicode.
func (d *Decoder) notUnicode() {
	if !d.lenient {
		d.syntax()
	}
	d.mangled = true
}

// Path returns the path to the value that is read, such as "messages[1].role".
func (d *Decoder) Path() string { return formatPath(d.path) }

// peek skips space and returns the next byte, or 0 at the end.
func (d *Decoder) peek() byte {
	if d.pos < len(d.doc) && d.doc[d.pos] > ' ' { // as in most documents
		return d.doc[d.pos]
	}
	for ; d.pos < len(d.doc); d.pos++ {
		switch c := d.doc[d.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// Kind returns the kind of the next value: one of '{', '[', '"', '0', 't', 'f'
// and 'n', or 0 if there is no value.
func (d *Decoder) Kind() byte {
	switch c := d.peek(); c {
	case '{', '[', '"', 't', 'f', 'n':
		return c
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	return 0
}

// Mismatch reads the next value, and fails because it is not what is wanted.
func (d *Decoder) Mismatch(want string) {
	if raw := d.View(); d.err == nil {
		d.fail(&Error{Kind: WrongType, Path: d.Path(), Want: want, Got: Describe(raw)})
	}
}

// Unwanted fails because the value that was read last is not what is wanted. Both
// are given with their articles, as in "a string".
func (d *Decoder) Unwanted(want, got string) {
	d.fail(&Error{Kind: WrongType, Path: d.Path(), Want: want, Got: got})
}

// Describe returns what a JSON value is, with its article.
func Describe(value string) string {
	switch (&Decoder{doc: value}).Kind() {
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
	}
	if strings.ContainsAny(value, ".eE") {
		return "a decimal number"
	}
	return "an integer"
}

func (d *Decoder) literal(s string) bool {
	if !strings.HasPrefix(d.doc[d.pos:], s) {
		d.syntax()
		return false
	}
	d.pos += len(s)
	return true
}

// Null reads the next value if it is null, and reports whether it was.
func (d *Decoder) Null() bool { return d.peek() == 'n' && d.literal("null") }

// Bool reads a boolean.
func (d *Decoder) Bool() bool {
	switch kind := d.peek(); {
	case kind == 't':
		return d.literal("true")
	case kind == 'f':
		d.literal("false")
	case d.lenient:
		d.Skip()
	default:
		d.Mismatch("a boolean")
	}
	return false
}

// String reads a string.
func (d *Decoder) String() string {
	switch {
	case d.peek() == '"':
		raw, cooked := d.scanString()
		if cooked {
			return unescape(raw)
		}
		return d.own(raw)
	case !d.lenient:
		d.Mismatch("a string")
	case !d.Null():
		return d.own(d.View())
	}
	return ""
}

// number reads a number and returns its text. The next value is a number.
func (d *Decoder) number() string {
	start := d.pos
	d.accept("-")
	if !d.accept("0") {
		d.digits()
	}
	if d.accept(".") {
		d.digits()
	}
	if d.accept("eE") {
		d.accept("+-")
		d.digits()
	}
	return d.doc[start:d.pos]
}

// accept reads one byte if it is one of set.
func (d *Decoder) accept(set string) bool {
	if d.pos < len(d.doc) && strings.IndexByte(set, d.doc[d.pos]) >= 0 {
		d.pos++
		return true
	}
	return false
}

func (d *Decoder) digits() {
	start := d.pos
	for d.pos < len(d.doc) && '0' <= d.doc[d.pos] && d.doc[d.pos] <= '9' {
		d.pos++
	}
	if d.pos == start {
		d.syntax()
	}
}

// Float reads a number, with the precision of 32 or 64 bits.
func (d *Decoder) Float(bits int) float64 {
	if d.Kind() != '0' {
		d.Mismatch("a number")
		return 0
	}
	text := d.number()
	if d.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(text, bits)
	if err != nil {
		d.outOfRange(text, false, math.MaxFloat64)
		return 0
	}
	return f
}

// Int reads an integer, which may have an exponent or a fraction of zero.
func (d *Decoder) Int() int64 {
	if d.Kind() != '0' {
		d.Mismatch("an integer")
		return 0
	}
	text := d.number()
	if d.err != nil {
		return 0
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && -MaxInteger <= n && n <= MaxInteger {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.Abs(f) > MaxInteger:
		d.outOfRange(text, true, MaxInteger)
		return 0
	case f != math.Trunc(f):
		d.Unwanted("an integer", "a decimal number")
		return 0
	}
	return int64(f)
}

// outOfRange fails because a number cannot be held.
func (d *Decoder) outOfRange(text string, integer bool, limit float64) {
	above := text[0] != '-'
	if !above {
		limit = -limit
	}
	d.fail(&Error{Kind: OutOfRange, Path: d.Path(), Integer: integer, Above: above, Limit: limit, Got: Clip(text, 24)})
}

// lenientInt reads an integer as a lenient decoder does. It reports false if the
// value is neither a number nor a string.
func (d *Decoder) lenientInt() (n int64, ok bool) {
	kind := d.Kind()
	text := d.View()
	if kind == '"' {
		text = strings.Trim(text, `"`)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && -MaxInteger <= n && n <= MaxInteger {
		return n, true
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) <= MaxInteger {
		return int64(f), true
	}
	return 0, kind == '0' || kind == '"'
}

// open reads the beginning of an object or array. It reports false if the next
// value is another one, which a lenient decoder skips.
func (d *Decoder) open(bracket byte, want string) bool {
	switch {
	case d.peek() != bracket:
		if d.lenient && len(d.path) > 0 {
			d.Skip()
		} else {
			d.Mismatch(want)
		}
		return false
	case len(d.path) == MaxDepth:
		d.fail(&Error{Kind: TooDeep})
		return false
	}
	d.pos++
	d.path = append(d.path, step{index: -1})
	return true
}

func (d *Decoder) close() {
	d.pos++
	d.path = d.path[:len(d.path)-1]
}

// next reads up to the next member or element of what was opened, of which n were
// read. It reports false at the end, which it reads, and after an error.
func (d *Decoder) next(n int, bracket byte) bool {
	if d.err != nil {
		return false
	}
	switch c := d.peek(); {
	case c == bracket:
		d.close()
		return false
	case n == 0:
		return true
	case c != ',':
		d.syntax()
		return false
	}
	d.pos++
	return true
}

// member reads up to the value of the next member of an object of which n were
// read, and returns its name. It reports false at the end of the object and after
// an error.
func (d *Decoder) member(n int) (name string, ok bool) {
	if !d.next(n, '}') {
		d.members -= n
		return "", false
	}
	if d.peek() != '"' {
		d.syntax()
		return "", false
	}
	name = d.text()
	if d.peek() != ':' {
		d.syntax()
		return "", false
	}
	d.pos++
	if d.members++; !d.lenient && (n == MaxMembers || d.members > 4*MaxMembers) {
		d.fail(&Error{Kind: TooManyMembers, Path: formatPath(d.path[:len(d.path)-1])})
		return "", false
	}
	d.path[len(d.path)-1].name = name
	return name, true
}

func (d *Decoder) duplicate() { d.fail(&Error{Kind: Duplicate, Path: d.Path()}) }

// Array reads an array and calls element for each element, which reads it. If most
// is not zero, a strict decoder refuses an array of more elements. Array reports
// false if the next value is not an array.
func (d *Decoder) Array(most int, element func(i int)) bool {
	return d.Sequence(func(i int) {
		if d.Limit(i, most) {
			element(i)
		}
	})
}

// Sequence is like [Decoder.Array] without bounds, for elements that take little
// memory.
func (d *Decoder) Sequence(element func(i int)) bool {
	if !d.open('[', "an array") {
		return false
	}
	for i := 0; d.next(i, ']'); i++ {
		d.path[len(d.path)-1].index = i
		element(i)
	}
	return true
}

// Limit counts element i of an array, which is to be read. It fails, and reports
// false, if the document has too many values or the array, for a strict decoder,
// more than most elements; 0 is no bound.
func (d *Decoder) Limit(i, most int) bool {
	if i == most && most > 0 && !d.lenient {
		d.tooLong(most)
		return false
	}
	return d.spend()
}

// tooLong fails because an array has more than most elements. It counts them for
// the message.
func (d *Decoder) tooLong(most int) {
	path := formatPath(d.path[:len(d.path)-1])
	d.Skip()
	n := most + 1
	for ; d.next(n, ']'); n++ {
		d.Skip()
	}
	d.fail(&Error{Kind: TooLong, Path: path, Limit: float64(most), Length: n})
}

// spend counts a value that is kept.
func (d *Decoder) spend() bool {
	if d.values--; d.values < 0 {
		d.fail(&Error{Kind: TooManyValues})
	}
	return d.err == nil
}

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
