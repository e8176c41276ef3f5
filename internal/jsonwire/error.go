package jsonwire

import "strconv"

// A Kind tells what is wrong with a document.
type Kind int

// The kinds of [Error].
const (
	Syntax    Kind = iota // it is not JSON, or not UTF-8
	Type                  // a value of another type was wanted
	Range                 // a number is too large to be held
	Duplicate             // an object names a member twice
	TooDeep               // arrays and objects nest too deep
	TooLong               // an array is too long
	Missing               // an object lacks a member
	TooMany               // an object, or the document, has too many members or elements
)

// An Error tells what is wrong with a document, and where.
type Error struct {
	Kind  Kind
	Path  string // of the value at fault; empty for the document
	Want  string // Type: what was wanted, with its article
	Got   string // Type: what there was, likewise; Range: the number
	Noun  string // Range: "integer" or "decimal"
	Above bool   // Range: whether the number is above the Limit rather than below
	Limit float64
	Count int // TooLong: the length of the array
}

func (e *Error) Error() string {
	at := ""
	if e.Path != "" {
		at = " in " + strconv.Quote(e.Path)
	}
	switch e.Kind {
	case Type:
		return "want " + e.Want + at + ", got " + e.Got
	case Range:
		return "number out of range" + at + ": " + e.Got
	case Duplicate:
		return "duplicate member" + at
	case Missing:
		return "missing member" + at
	case TooDeep:
		return "nested too deep"
	case TooLong:
		return "array too long" + at
	case TooMany:
		return "too many members or elements" + at
	}
	return "not valid JSON"
}
