// Package ascii changes the case of text without regard to Unicode.
package ascii

// ToLower returns s with ASCII letters in lower case. The result is as long as s,
// unlike that of [strings.ToLower].
func ToLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
