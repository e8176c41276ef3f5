package instance

import (
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxPattern bounds the length of a pattern in bytes: package regexp may need a thousand
// instructions for each.
const maxPattern = 1024

// A pattern is a regular expression of a schema.
type pattern struct {
	source   string
	expr     *regexp.Regexp // nil if package regexp cannot express the pattern
	size     int            // instructions of expr
	steps    *budget
	examples map[string]bool // maker.examples
}

// compilePattern compiles a pattern. It returns no error for a pattern that
// package regexp cannot express: some generators of schemas put a pattern with
// lookahead beside each format.
func (m *maker) compilePattern(source string) (jsonschema.Regexp, error) {
	p := &pattern{source: source, steps: m.steps, examples: m.examples}
	re, err := syntax.Parse(source, syntax.Perl)
	if err != nil || len(source) > maxPattern {
		return p, nil
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return p, nil
	}
	p.size = len(program.Inst)
	m.steps.spend(4 * p.size)
	p.expr, err = regexp.Compile(source)
	return p, err
}

func (p *pattern) String() string { return p.source }

// MatchString reports whether p matches s. A pattern that package regexp cannot
// express matches only examples of formats.
func (p *pattern) MatchString(s string) bool {
	if p.expr == nil {
		return p.examples[s]
	}
	p.steps.spend(1 + len(s)*p.size/1024)
	return p.expr.MatchString(s)
}

// patternExample returns a short string that re is likely to match. It ignores
// assertions such as \b.
func patternExample(re *syntax.Regexp, steps *budget) string {
	steps.spend(1)
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		return characterOf(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "a"
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(patternExample(sub, steps))
		}
		return b.String()
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		return patternExample(re.Sub[0], steps)
	case syntax.OpRepeat:
		example := patternExample(re.Sub[0], steps)
		steps.spend(re.Min * len(example))
		return strings.Repeat(example, re.Min)
	}
	return ""
}

// characterOf returns a character of a class, which is a list of ranges.
func characterOf(class []rune) string {
	for _, r := range "a0A-_ " {
		for i := 0; i+1 < len(class); i += 2 {
			if class[i] <= r && r <= class[i+1] {
				return string(r)
			}
		}
	}
	return string(class[:min(1, len(class))])
}
