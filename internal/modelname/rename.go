package modelname

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Rename returns text with the model name old replaced by name, except where old
// is a part of a longer name.
func Rename(text, old, name string) string {
	if old == "" || !strings.Contains(text, old) {
		return text
	}
	var b strings.Builder
	copied := 0 // b has what text[:copied] becomes
	for from := 0; ; {
		i := strings.Index(text[from:], old)
		if i < 0 {
			b.WriteString(text[copied:])
			return b.String()
		}
		start := from + i
		end := start + len(old)
		if endsInName(text[:start]) || startsInName(text[end:]) {
			from = start + 1
			continue
		}
		b.WriteString(text[copied:start])
		b.WriteString(name)
		copied, from = end, end
	}
}

const memberName = "name"

// RenameTitle returns the name that people see of a model whose name changes from old to
// name: what [RenameMembers] makes of the member name, or "" if it removes that.
func RenameTitle(title, old, name string, hidden ...string) (renamed string) {
	value, err := json.Marshal(title)
	if err != nil || title == "" {
		return ""
	}
	members := RenameMembers(map[string]json.RawMessage{memberName: value}, old, name, hidden...)
	if value, ok := members[memberName]; ok {
		_ = json.Unmarshal(value, &renamed) // a string, as title was
	}
	return renamed
}

// RenameMembers returns a copy of the members of a model's JSON object, for a
// model whose name changes from old to name. Members that are strings have the new
// name. Members that would still reveal old, or a name in hidden, are removed. So
// are root and parent, which name the model's origin, if the name changes, and name and
// display_name, which do so in other words, unless the new name contains old.
//
// Names that consist of letters only are neither replaced nor hidden, because in a
// text they may be ordinary words.
func RenameMembers(members map[string]json.RawMessage, old, name string, hidden ...string) map[string]json.RawMessage {
	members = maps.Clone(members)
	hidden = slices.DeleteFunc(slices.Clone(hidden), func(h string) bool { return h == old || isWord(h) })
	replace := false
	if old != name && old != "" {
		delete(members, "root")
		delete(members, "parent")
		if !strings.Contains(name, old) {
			delete(members, memberName)
			delete(members, "display_name")
		}
		replace = !isWord(old)
	}
	if !replace && len(hidden) == 0 {
		return members
	}
	reveals := func(text string) bool {
		return replace && strings.Contains(text, old) ||
			slices.ContainsFunc(hidden, func(h string) bool { return Rename(text, h, "") != text })
	}
	for member, value := range members {
		var v any
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber() // accepts numbers that a float64 cannot hold
		if d.Decode(&v) != nil {
			delete(members, member)
			continue
		}
		text, isText := v.(string)
		if isText && replace {
			v = Rename(text, old, "\x00") // the new name may contain old, which reveals nothing
		}
		if anyText(v, reveals) {
			delete(members, member)
		} else if isText && replace && v != text {
			members[member], _ = json.Marshal(Rename(text, old, name)) // strings always marshal
		}
	}
	return members
}

// anyText reports whether f returns true for a string or a member name in the
// decoded JSON value v.
func anyText(v any, f func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		return slices.ContainsFunc(v, func(v any) bool { return anyText(v, f) })
	case map[string]any:
		for name, v := range v {
			if f(name) || anyText(v, f) {
				return true
			}
		}
	}
	return false
}

// isWord reports whether s consists of letters only.
func isWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// punctuation lists the characters that may be inside a name but not at its start or end.
const punctuation = "-_./:@"

// startsInName reports whether s starts with the rest of a name that began before it.
func startsInName(s string) bool {
	s = strings.TrimLeft(s, punctuation)
	return s != "" && isNameByte(s[0])
}

// endsInName reports whether s ends with the beginning of a name that goes on
// after it.
func endsInName(s string) bool {
	s = strings.TrimRight(s, punctuation)
	return s != "" && isNameByte(s[len(s)-1])
}

// isNameByte reports whether c is a letter or a digit, or a byte of a character
// outside ASCII.
func isNameByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
