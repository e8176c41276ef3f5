// JSON that keeps the text of numbers.

package pricing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// A document is a value of JSON: an object, a []any, a string, a json.Number, which keeps the
// text of the number, a bool or nil.
type document = any

// An object is an object of JSON. Of members with the same name all are kept.
type object []member

type member struct {
	name  string
	value document
}

const maxDepth = 32 // of a document

// readObject reads a document that is an object.
func readObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("pricing: the prices are not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := readValue(dec, maxDepth)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one value")
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("pricing: the prices are not JSON, near byte %d: %w", dec.InputOffset(), err)
	}
	o, ok := v.(object)
	if !ok {
		return nil, errors.New("pricing: the prices must be an object")
	}
	return o, nil
}

func readValue(dec *json.Decoder, depth int) (document, error) {
	token, err := dec.Token()
	delim, ok := token.(json.Delim)
	switch {
	case err != nil || !ok:
		return token, err
	case depth == 0:
		return nil, errors.New("the values are nested too deep")
	case delim == '[':
		list := []any{}
		for dec.More() {
			v, err := readValue(dec, depth-1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	o := object{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		v, err := readValue(dec, depth-1)
		if err != nil {
			return nil, err
		}
		o = append(o, member{name.(string), v})
	}
	_, err = dec.Token()
	return o, err
}

// get returns the last member with that name, and nil if there is none.
func (o object) get(name string) document {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].name == name {
			return o[i].value
		}
	}
	return nil
}

// kind returns what v is, for errors.
func kind(v document) string {
	switch v.(type) {
	case object:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}

// number returns the text of a number, which may be written as a string.
func number(v document) (string, error) {
	switch v := v.(type) {
	case json.Number:
		return v.String(), nil
	case string:
		return v, nil
	}
	return "", fmt.Errorf("must be a number, not %s", kind(v))
}
