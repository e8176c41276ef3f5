package jsonwire

import (
	"math"
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
