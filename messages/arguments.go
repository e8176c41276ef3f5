package messages

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// errInvalidCall is the error for a reply with a call that this API cannot express.
var errInvalidCall = &llmhttp.Error{
	Status:  http.StatusBadGateway,
	Message: "The model called a tool without its name, or with arguments that are not a JSON object.",
}

// startsObject reports whether text begins with the brace of a JSON object.
func startsObject(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}

func isSpace(s string) bool { return strings.Trim(s, " \t\r\n") == "" }

// argumentsCompletion returns the text that must follow the arguments of a call to make
// them a JSON object. An incomplete object is completed only if the reply was cut, and
// is an error otherwise. Any value that is not an object is an error, except that no
// arguments and null count as an empty object.
func argumentsCompletion(text []byte, cut bool) (rest string, err error) {
	trimmed := bytes.Trim(text, " \t\r\n")
	switch {
	case len(trimmed) == 0, string(trimmed) == "null":
		return "", nil
	case trimmed[0] != '{':
		return "", errInvalidCall
	case json.Valid(trimmed):
		return "", nil
	}
	rest, ok := documentCompletion(trimmed)
	if !cut || !ok {
		return "", errInvalidCall
	}
	return rest, nil
}

// documentCompletion returns the text that completes a JSON document of which text is
// the beginning. ok is false if nothing completes it. A string that was cut is closed. A
// value that is missing is null.
func documentCompletion(text []byte) (rest string, ok bool) {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for err := error(nil); err == nil; {
		_, err = d.ReadToken()
	}
	token := tokenCompletion(bytes.TrimLeft(text[d.InputOffset():], " \t\r\n,:"))
	closing := map[jsontext.Kind]string{'{': "}", '[': "]"}
	var brackets string
	for depth := d.StackDepth(); depth > 0; depth-- {
		kind, _ := d.StackIndex(depth)
		brackets += closing[kind]
	}
	for _, missing := range []string{
		"",
		"null",    // after [1, or {"a":
		":null",   // after {"a"
		`"":null`, // after {"a":1,
	} {
		rest = token + missing + brackets
		if json.Valid(append(bytes.Clone(text), rest...)) {
			return rest, true
		}
	}
	return "", false
}

// tokenCompletion returns the text that completes the beginning of a JSON string,
// number or literal.
func tokenCompletion(token []byte) string {
	if len(token) == 0 {
		return ""
	}
	switch token[0] {
	case '"':
		return stringCompletion(token[1:])
	case 't', 'f', 'n':
		for _, literal := range []string{"true", "false", "null"} {
			if rest, ok := strings.CutPrefix(literal, string(token)); ok {
				return rest
			}
		}
	}
	if last := token[len(token)-1]; last < '0' || last > '9' {
		return "0"
	}
	return ""
}

// stringCompletion returns the text that completes a JSON string without its opening
// quote, which may end within an escape sequence.
func stringCompletion(s []byte) string {
	for {
		i := bytes.IndexByte(s, '\\')
		switch {
		case i < 0:
			return `"`
		case i+1 == len(s):
			return `\"`
		case s[i+1] != 'u':
			s = s[i+2:]
		case len(s) < i+6:
			return strings.Repeat("0", i+6-len(s)) + `"`
		default:
			s = s[i+6:]
		}
	}
}
