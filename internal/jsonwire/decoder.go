package jsonwire

import (
	"math"
	"strings"
	"sync"
)

// Bounds on what a document may contain besides its size in bytes. They keep a
// small document from becoming much memory.
const (
	// MaxDepth is the maximum depth of nested arrays and objects.
	MaxDepth = 512

	// MaxMembers is the maximum number of members of an object. Objects that are
	// nested in each other may have four times as many together. It does not
	// apply to lenient decoders.
	MaxMembers = 16384

	// MaxValues is the maximum number of array elements that are decoded and of
	// unknown members that are kept.
	MaxValues = 1 << 16

	// MaxInteger bounds integers to those that survive a float64, as JSON numbers must in
	// JavaScript, and an int.
	MaxInteger = (1<<53 - 1) & math.MaxInt
)

// A Decoder reads one JSON document. Its lexer reads tokens, its parser arrays, objects
// and values that are skipped, and the Decoder itself Go values. The first error sticks:
// after it, all methods return zero values.
type Decoder struct {
	parser
	values  int                    // how many of MaxValues are left
	allows  func(name string) bool // see UnmarshalTags
	scratch []byte
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
	return d.finish()
}

// finish ends the document, returns the first error, and gives d back for another document.
func (d *Decoder) finish() *Error {
	err := d.end()
	if cap(d.path) <= 64 && cap(d.names) <= 1024 {
		clear(d.path[:cap(d.path)])
		clear(d.names[:cap(d.names)])
		*d = Decoder{parser: parser{path: d.path[:0], names: d.names[:0]}, scratch: d.scratch}
		decoders.Put(d)
	}
	return err
}

// Lenient reports whether d was started by [UnmarshalLenient].
func (d *Decoder) Lenient() bool { return d.lenient }

// Fail ends decoding with an error about the value that is read.
func (d *Decoder) Fail(err error) { d.failHere(&Error{Kind: Other, Err: err}) }

// Mismatch reads the next value and fails because it is of another type than wanted.
// The type is given with its article, as in "a string".
func (d *Decoder) Mismatch(want string) {
	if raw := d.View(); d.err == nil {
		d.MismatchGot(want, Describe(raw))
	}
}

// MismatchGot fails because the value that was read last is of another type than wanted.
// Both types are given with their articles.
func (d *Decoder) MismatchGot(want, got string) {
	d.failHere(&Error{Kind: WrongType, Want: want, Got: got})
}

// Describe returns the type of a JSON value with its article.
func Describe(value string) string {
	switch (&lexer{doc: value}).Kind() {
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

// begin reads the bracket or brace that an array or object begins with. It reports
// false if the next value is another one, which a lenient Decoder skips.
func (d *Decoder) begin(bracket byte, want string) bool {
	switch {
	case d.peek() == bracket:
		return d.open()
	case d.lenient && len(d.path) > 0:
		d.Skip()
	default:
		d.Mismatch(want)
	}
	return false
}

// Array reads an array and calls element for each element, which reads it. If most
// is not zero, a strict Decoder refuses an array of more elements. Array reports
// false if the next value is not an array.
func (d *Decoder) Array(most int, element func(i int)) bool {
	return d.UnboundedArray(func(i int) {
		if d.CountElement(i, most) {
			element(i)
		}
	})
}

// UnboundedArray is like [Decoder.Array] without bounds, for elements that take little
// memory.
func (d *Decoder) UnboundedArray(element func(i int)) bool {
	if !d.begin('[', "an array") {
		return false
	}
	for i := 0; d.next(i, ']'); i++ {
		d.path[len(d.path)-1].index = i
		element(i)
	}
	return true
}

// CountElement counts element i of an array before it is read. It fails, and reports false,
// if the document has too many values. A strict Decoder also fails if the array has
// more than most elements; 0 is no bound.
func (d *Decoder) CountElement(i, most int) bool {
	if i == most && most > 0 && !d.lenient {
		d.failLength(most)
		return false
	}
	return d.countValue()
}

// failLength fails because an array has more than most elements. It counts them for
// the message.
func (d *Decoder) failLength(most int) {
	path := d.parentPath()
	d.Skip()
	n := most + 1
	for ; d.next(n, ']'); n++ {
		d.Skip()
	}
	d.fail(&Error{Kind: TooLong, Path: path, Limit: float64(most), Length: n})
}

// countValue counts a value that is kept. It reports false after an error, which may
// be that there are too many values.
func (d *Decoder) countValue() bool {
	if d.values--; d.values < 0 {
		d.fail(&Error{Kind: TooManyValues})
	}
	return d.err == nil
}
