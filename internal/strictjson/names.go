package strictjson

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp/internal/membername"
)

// A shape describes the objects of a document that are decoded into structs. A nil shape
// stands for values without such objects.
type shape struct {
	names   []string // the members that a struct has
	members []*shape // their values
	element *shape   // of arrays, and of the values of maps
}

var shapes sync.Map // from reflect.Type to *shape

// shapeOf returns the shape of values of type t. It panics if the name of a member is not
// plain (see package membername), or if t contains itself.
func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := newShape(t, 0)
	shapes.Store(t, s)
	return s
}

func newShape(t reflect.Type, depth int) *shape {
	if depth > MaxDepth {
		panic("strictjson: a type that contains itself")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return newShape(t.Elem(), depth+1)
	case reflect.Slice, reflect.Array, reflect.Map:
		if e := newShape(t.Elem(), depth+1); e != nil {
			return &shape{element: e}
		}
	case reflect.Struct:
		s := new(shape)
		s.addFields(t, depth)
		return s
	}
	return nil
}

// addFields adds the members of a struct. Those of embedded structs are its own.
func (s *shape) addFields(t reflect.Type, depth int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addFields(f.Type, depth+1)
			continue
		case !f.IsExported() || name == "-":
			continue
		case !membername.Plain(name) || name == "":
			panic("strictjson: not a plain name: " + name)
		}
		s.names = append(s.names, name)
		s.members = append(s.members, newShape(f.Type, depth+1))
	}
}

// member returns the shape of the value of a member, and whether there is such a member.
func (s *shape) member(name []byte) (value *shape, known bool) {
	for i, n := range s.names {
		if n == string(name) {
			return s.members[i], true
		}
	}
	return s.element, s.element != nil
}

// A nameChecker looks for members that must not be in a document. The document is valid.
type nameChecker struct {
	doc []byte
	pos int
}

// value reads the next value. If it is an object, allows decides on its members that have
// no field; nil allows all.
func (c *nameChecker) value(s *shape, allows func(name string) bool) *Error {
	switch kind := c.next(); {
	case kind == '{' && s != nil:
		return c.object(s, allows)
	case kind == '[' && s != nil && s.element != nil:
		return c.array(s.element)
	}
	c.skip()
	return nil
}

func (c *nameChecker) object(s *shape, allows func(name string) bool) *Error {
	c.pos++
	for c.next() != '}' {
		if c.doc[c.pos] == ',' {
			c.pos++
			c.next()
		}
		name := c.name()
		value, known := s.member(name)
		if !known {
			if err := checkUnknown(name, s.names, allows); err != nil {
				return err
			}
		}
		c.next()
		c.pos++ // the colon
		if err := c.value(value, nil); err != nil {
			return err.within(string(name))
		}
	}
	c.pos++
	return nil
}

// checkUnknown returns an error if an object with the fields known must not have a member
// with the given name, which is none of them.
func checkUnknown(name []byte, known []string, allows func(name string) bool) *Error {
	if !membername.Plain(name) {
		if folded := membername.Folded(string(name), known); folded != "" {
			return (&Error{Kind: WrongCase, Want: folded}).within(string(name))
		}
	}
	if allows != nil && !allows(string(name)) {
		return (&Error{Kind: Unknown}).within(string(name))
	}
	return nil
}

func (c *nameChecker) array(element *shape) *Error {
	c.pos++
	for i := 0; c.next() != ']'; i++ {
		if c.doc[c.pos] == ',' {
			c.pos++
		}
		if err := c.value(element, nil); err != nil {
			return err.within(strconv.Itoa(i))
		}
	}
	c.pos++
	return nil
}

// within returns e as an error about a document that has the value of e at name.
func (e *Error) within(name string) *Error {
	e.Path = jsontext.Pointer("").AppendToken(name) + e.Path
	return e
}

// next skips space and returns the next byte.
func (c *nameChecker) next() byte {
	for c.doc[c.pos] <= ' ' {
		c.pos++
	}
	return c.doc[c.pos]
}

// name reads a string and returns its text.
func (c *nameChecker) name() []byte {
	start := c.pos
	c.pos += 1 + stringLen(c.doc[start+1:])
	quoted := c.doc[start:c.pos]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	name, _ := jsontext.AppendUnquote(nil, quoted) // which is valid
	return name
}

// skip reads the next value.
func (c *nameChecker) skip() {
	for depth := 0; c.pos < len(c.doc); c.pos++ {
		switch c.doc[c.pos] {
		case '"':
			c.pos += stringLen(c.doc[c.pos+1:])
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return // the end of what contains a number or a literal
			}
		case ',':
			if depth == 0 {
				return
			}
			continue
		default:
			continue
		}
		if depth == 0 { // a string, array or object has ended
			c.pos++
			return
		}
	}
}
