package pattern

import (
	"encoding/json"
	"maps"
	"strings"
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
// tell what a model was made of and where it is.
func RenameMembers(members map[string]json.RawMessage, old, name string) map[string]json.RawMessage {
	members = maps.Clone(members)
	if old == name {
		return members
	}
	delete(members, "root")
	delete(members, "parent")
	for member, value := range members {
		var text string
		if json.Unmarshal(value, &text) != nil {
			continue
		}
		if renamed := Rename(text, old, name); renamed != text {
			members[member], _ = json.Marshal(renamed) // a string can be
		}
	}
	return members
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
