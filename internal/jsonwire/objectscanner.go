package jsonwire

// An ObjectScanner finds out when a JSON object that arrives in pieces is complete.
// It assumes that the object is valid.
type ObjectScanner struct {
	depth            int
	any              bool // there was something other than space
	inString, escape bool
}

// HasContent reports whether there was something other than space.
func (s *ObjectScanner) HasContent() bool { return s.any }

// Complete reports whether no array, object or string is open.
func (s *ObjectScanner) Complete() bool { return s.any && s.depth == 0 && !s.inString }

// Scan reads the next piece.
func (s *ObjectScanner) Scan(text string) {
	for i := range len(text) {
		c := text[i]
		switch {
		case s.escape:
			s.escape = false
		case s.inString:
			s.escape = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.any, s.inString = true, true
		case c == '{' || c == '[':
			s.any = true
			s.depth++
		case c == '}' || c == ']':
			s.depth--
		case c > ' ':
			s.any = true
		}
	}
}
