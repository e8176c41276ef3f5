package messages

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// errCall is the error of a reply with a call that this API cannot express.
var errCall = &llmhttp.Error{
	Status:  http.StatusBadGateway,
	Message: "The model called a tool without its name, or with arguments that are not a JSON object.",
}

// startsObject reports whether the arguments of a call begin as an object.
func startsObject(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{'
}

func isSpace(s string) bool { return strings.Trim(s, " \t\r\n") == "" }

// missingArguments returns what must follow the arguments of a call to make them a
// JSON object. If the reply was cut, that completes the object; otherwise an incomplete
// one is an error, and so is every other value. No arguments and null count as an
// empty object.
func missingArguments(text []byte, cut bool) (rest string, err error) {
	trimmed := bytes.Trim(text, " \t\r\n")
	switch {
	case len(trimmed) == 0, string(trimmed) == "null":
		return "", nil
	case trimmed[0] != '{':
		return "", errCall
	case json.Valid(trimmed):
		return "", nil
	case !cut:
		return "", errCall
	}
	if rest = completion(trimmed); !json.Valid(append(trimmed[:len(trimmed):len(trimmed)], rest...)) {
		return "", errCall
	}
	return rest, nil
}

// completion returns what completes the beginning of a JSON document that ends
// anywhere. Strings end where they were cut, and values that are missing are null.
func completion(text []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for err := error(nil); err == nil; {
		_, err = d.ReadToken()
	}
	rest := bytes.TrimLeft(text[d.InputOffset():], " \t\r\n")
	separator := byte(0)
	if len(rest) > 0 && (rest[0] == ',' || rest[0] == ':') {
		separator, rest = rest[0], bytes.TrimLeft(rest[1:], " \t\r\n")
	}
	b := []byte(tokenCompletion(rest))
	depth := d.StackDepth()
	kind, n := d.StackIndex(depth)
	switch isName := kind == '{' && n%2 == 0; {
	case isName && len(rest) > 0:
		b = append(b, ":null"...)
	case isName && separator != 0:
		b = append(b, `"":null`...)
	case isName, len(rest) > 0:
	case kind == '{' && separator == 0:
		b = append(b, ":null"...)
	case separator != 0:
		b = append(b, "null"...)
	}
	for ; depth > 0; depth-- {
		kind, _ := d.StackIndex(depth)
		b = append(b, byte(kind)+2) // the closing bracket
	}
	return string(b)
}

// tokenCompletion returns what completes the beginning of a JSON string, number or
// literal.
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

// stringCompletion returns what completes a JSON string, which may end within an
// escape sequence.
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
