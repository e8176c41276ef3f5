package pattern

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Rename returns text with the model's name old replaced by another, wherever
// it is not a part of a longer name.
func Rename(text, old, name string) string {
	if old == "" || !strings.Contains(text, old) {
		return text
	}
	var b strings.Builder
	last := 0
	for at := 0; ; {
		i := strings.Index(text[at:], old)
		if i < 0 {
			b.WriteString(text[last:])
			return b.String()
		}
		start := at + i
		end := start + len(old)
		if at = start + 1; !endsName(text[:start]) && !beginsName(text[end:]) {
			b.WriteString(text[last:start])
			b.WriteString(name)
			last, at = end, end
		}
	}
}

// RenameMembers returns a copy of the members of a model that is called name
// instead of old, with its texts renamed. It has no root and no parent, which
// tell what a model was made of and where it is, and nothing else that tells
// old, or as a whole name one of the hidden names of other models. Names that
// are plain words are left in texts, which may mean something else by them.
func RenameMembers(members map[string]json.RawMessage, old, name string, hidden ...string) map[string]json.RawMessage {
	members = maps.Clone(members)
	hidden = slices.DeleteFunc(slices.Clone(hidden), func(h string) bool { return h == old || isWord(h) })
	renamed := old != name && old != ""
	if renamed {
		delete(members, "root")
		delete(members, "parent")
		renamed = !isWord(old)
	}
	if !renamed && len(hidden) == 0 {
		return members
	}
	tells := func(text string) bool {
		return renamed && strings.Contains(text, old) ||
			slices.ContainsFunc(hidden, func(h string) bool { return Rename(text, h, "") != text })
	}
	for member, value := range members {
		var v any
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber() // of any size
		if d.Decode(&v) != nil {
			delete(members, member)
			continue
		}
		text, isText := v.(string)
		if isText && renamed {
			v = Rename(text, old, "\x00") // name may have old in it
		}
		if anyText(v, tells) {
			delete(members, member)
		} else if isText && renamed && v != text {
			members[member], _ = json.Marshal(Rename(text, old, name)) // a string can be
		}
	}
	return members
}

// anyText reports whether is holds for one of the texts in a decoded value, or
// for the name of a member in it.
func anyText(v any, is func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return is(v)
	case []any:
		return slices.ContainsFunc(v, func(v any) bool { return anyText(v, is) })
	case map[string]any:
		for name, v := range v {
			if is(name) || anyText(v, is) {
				return true
			}
		}
	}
	return false
}

func isWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// joints are what may stand within a name, but not at its end.
const joints = "-_./:@"

// beginsName reports whether a name that ends before s goes on in it.
func beginsName(s string) bool {
	s = strings.TrimLeft(s, joints)
	return s != "" && isNameByte(s[0])
}

// endsName reports whether a name that begins behind s has begun in it.
func endsName(s string) bool {
	s = strings.TrimRight(s, joints)
	return s != "" && isNameByte(s[len(s)-1])
}

func isNameByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
