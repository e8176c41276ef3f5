// Package jsontest tells tests which documents are strict JSON, independently of package
// jsonwire, whose decisions it checks.
package jsontest

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"unicode/utf8"
)

// IsStrict reports whether document is one JSON document in UTF-8, without halves of surrogate
// pairs and without objects that have two members with the same name.
func IsStrict[D ~string | ~[]byte](document D) bool {
	doc := []byte(document)
	if !utf8.Valid(doc) || !json.Valid(doc) || hasLoneSurrogate(doc) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	return hasDistinctNames(d)
}

var (
	escape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)
	high   = regexp.MustCompile(`^\\u[dD][89abAB]`)
	low    = regexp.MustCompile(`^\\u[dD][c-fC-F]`)
)

// hasLoneSurrogate reports whether an escape sequence of a valid document is half of a pair.
func hasLoneSurrogate(doc []byte) bool {
	end := -1 // of a high half that needs its other half
	for _, at := range escape.FindAllIndex(doc, -1) {
		sequence := doc[at[0]:at[1]]
		switch {
		case end >= 0 && (at[0] != end || !low.Match(sequence)), end < 0 && low.Match(sequence):
			return true
		case end < 0 && high.Match(sequence):
			end = at[1]
		default:
			end = -1
		}
	}
	return end >= 0
}

// hasDistinctNames reads a valid value, and reports whether the names in each of its objects
// differ.
func hasDistinctNames(d *json.Decoder) bool {
	token, err := d.Token()
	if err != nil {
		return err == io.EOF
	}
	isObject := token == json.Delim('{')
	if !isObject && token != json.Delim('[') {
		return true
	}
	names := make(map[json.Token]bool)
	for d.More() {
		if isObject {
			name, _ := d.Token()
			if names[name] {
				return false
			}
			names[name] = true
		}
		if !hasDistinctNames(d) {
			return false
		}
	}
	_, err = d.Token()
	return err == nil
}
