// How texts and differences are shown.

package llmfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// quote quotes the beginning of a text.
func quote(s string) string {
	const limit = 100
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:limit], "")) + "..."
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// lookupJSON returns the member of a document that path names.
func lookupJSON(doc []byte, path string) (json.RawMessage, error) {
	at := json.RawMessage(doc)
	for _, name := range strings.FieldsFunc(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		if i, err := strconv.Atoi(name); err == nil {
			var list []json.RawMessage
			if json.Unmarshal(at, &list) == nil {
				if i >= len(list) {
					return nil, fmt.Errorf("%s is not there: the list has %s", path, plural(len(list), "element"))
				}
				at = list[i]
				continue
			}
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(at, &object); err != nil {
			return nil, fmt.Errorf("%s is not there: nothing can have a member %q but an object", path, name)
		}
		value, ok := object[name]
		if !ok {
			return nil, fmt.Errorf("%s is not there: no member %q", path, name)
		}
		at = value
	}
	return at, nil
}

// canonicalJSON returns doc without white space and with sorted members. It returns doc itself
// if that is not JSON.
func canonicalJSON(doc []byte) string {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(doc)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return string(doc)
	}
	return string(b)
}

// diffLines returns the lines of got and of want, with a sign before those that only one of
// them has. It is a longest common subsequence.
func diffLines(got, want []string) string {
	common := make([][]int, len(got)+1) // common[i][j] is the length for got[i:] and want[j:]
	for i := range common {
		common[i] = make([]int, len(want)+1)
	}
	for i := len(got) - 1; i >= 0; i-- {
		for j := len(want) - 1; j >= 0; j-- {
			if got[i] == want[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var b strings.Builder
	i, j := 0, 0
	for i < len(got) || j < len(want) {
		switch {
		case i < len(got) && j < len(want) && got[i] == want[j]:
			b.WriteString("      " + got[i] + "\n")
			i, j = i+1, j+1
		case j == len(want) || i < len(got) && common[i+1][j] >= common[i][j+1]:
			b.WriteString("    - " + got[i] + "\n")
			i++
		default:
			b.WriteString("    + " + want[j] + "\n")
			j++
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func compactJSON(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}
