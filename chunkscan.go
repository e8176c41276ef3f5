package llmhttp

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// A chunkScanner decodes the chunks that most of a stream consists of: one
// choice, one short text without escapes, and vendor members that are strings or
// null. It takes less time than the library (budget: CPU of a gateway's stream;
// benchmark: BenchmarkScanChunk). What it does not understand is left to the
// library, so it need not report errors.
type chunkScanner struct {
	data []byte
	pos  int
	bad  bool // the rest is for the library
}

// scanChunk decodes data into c, which is zero. It reports false if data is not
// a chunk of the common form; c may then have been changed.
func scanChunk(data []byte, c *ChatChunk) bool {
	s := chunkScanner{data: data}
	s.members(func(name string) {
		switch name {
		case "id":
			c.ID = s.text()
		case "object":
			s.expect(`"` + objectChunk + `"`)
		case "created":
			c.Created = int64(s.integer())
		case "model":
			c.Model = s.text()
		case "choices":
			c.Choices = []ChunkChoice{{}}
			s.expect("[")
			s.choice(&c.Choices[0])
			s.expect("]")
		case "usage":
			s.expect("null")
		default:
			s.extra(&c.Extra, name)
		}
	})
	return !s.bad && s.pos == len(data)
}

func (s *chunkScanner) choice(c *ChunkChoice) {
	s.members(func(name string) {
		switch name {
		case "index":
			c.Index = s.integer()
		case "delta":
			s.delta(&c.Delta)
		case "finish_reason", "logprobs", "stop_reason":
			s.expect("null")
		default:
			s.bad = true
		}
	})
}

func (s *chunkScanner) delta(d *Delta) {
	s.members(func(name string) {
		switch name {
		case "role":
			s.expect(`"assistant"`)
			d.Role = RoleAssistant
		case "content":
			d.Content = s.text()
		case "reasoning_content":
			d.Reasoning = s.text()
		default:
			s.bad = true
		}
	})
}

// members reads an object, and calls member after the name of each member. A
// name that occurs twice is left to the library.
func (s *chunkScanner) members(member func(name string)) {
	var seen [12]string
	s.expect("{")
	for i := range seen {
		name := s.bytes()
		for _, other := range seen[:i] {
			s.bad = s.bad || string(name) == other
		}
		seen[i] = string(name)
		s.expect(":")
		if s.bad {
			return
		}
		member(seen[i])
		if s.bad || s.pos >= len(s.data) {
			s.bad = true
			return
		}
		s.pos++
		switch s.data[s.pos-1] {
		case '}':
			return
		case ',':
		default:
			s.bad = true
			return
		}
	}
	s.bad = true
}

// expect reads literal.
func (s *chunkScanner) expect(literal string) {
	if s.bad || len(s.data)-s.pos < len(literal) || string(s.data[s.pos:s.pos+len(literal)]) != literal {
		s.bad = true
		return
	}
	s.pos += len(literal)
}

// bytes reads a string without escapes, and returns what is between the quotes.
func (s *chunkScanner) bytes() []byte {
	s.expect(`"`)
	if s.bad {
		return nil
	}
	n := bytes.IndexByte(s.data[s.pos:], '"')
	if n < 0 {
		s.bad = true
		return nil
	}
	b := s.data[s.pos : s.pos+n]
	for _, c := range b {
		if c == '\\' || c < ' ' {
			s.bad = true
			return nil
		}
	}
	s.pos += n + 1
	return b
}

// text reads a string that is valid UTF-8.
func (s *chunkScanner) text() string {
	b := s.bytes()
	s.bad = s.bad || !utf8.Valid(b)
	return string(b)
}

// integer reads an integer of at most 15 digits.
func (s *chunkScanner) integer() int {
	end := s.pos
	for end < len(s.data) && end-s.pos < 16 && '0' <= s.data[end] && s.data[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(string(s.data[s.pos:end]))
	s.bad = s.bad || err != nil || end-s.pos > 15 || n > 0 && s.data[s.pos] == '0' || n == 0 && end-s.pos != 1
	s.pos = end
	return n
}

// extra reads a string or null that has no field.
func (s *chunkScanner) extra(e *Extra, name string) {
	start := s.pos
	if s.pos < len(s.data) && s.data[s.pos] == 'n' {
		s.expect("null")
	} else {
		s.text()
	}
	s.bad = s.bad || !utf8.ValidString(name)
	if !s.bad {
		if *e == nil {
			*e = make(Extra)
		}
		(*e)[name] = bytes.Clone(s.data[start:s.pos])
	}
}
