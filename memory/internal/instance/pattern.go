package instance

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
)

// A pattern is a regular expression of a schema. A nil one is beyond what
// package regexp can do, and passes over everything.
type pattern struct {
	expr *regexp.Regexp
	tree *syntax.Regexp
	size int
}

const (
	maxPattern     = 4096 // bytes of an expression
	maxPatternSize = 4096 // what it may grow to when its repetitions are written out
)

// pattern returns the expression, which is compiled once.
func (g *generator) pattern(expr string) *pattern {
	p, ok := g.patterns[expr]
	if !ok {
		if g.spend(len(expr)) && len(expr) <= maxPattern {
			p = compile(translate(expr))
		}
		g.patterns[expr] = p
	}
	return p
}

func compile(expr string) *pattern {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	size := treeSize(tree)
	if size > maxPatternSize {
		return nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil
	}
	return &pattern{expr: re, tree: tree, size: size}
}

// treeSize returns about how many instructions re compiles to.
func treeSize(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += treeSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return min(n, maxPatternSize+1)
}

// translate rewrites the escapes of ECMAScript that package regexp has not.
func translate(expr string) string {
	var b strings.Builder
	for len(expr) > 1 {
		switch {
		case expr[0] != '\\':
			b.WriteByte(expr[0])
			expr = expr[1:]
		case len(expr) >= 6 && expr[1] == 'u' && isHex(expr[2:6]):
			b.WriteString(`\x{` + expr[2:6] + `}`)
			expr = expr[6:]
		case strings.HasPrefix(expr, `\u{`):
			b.WriteString(`\x{`)
			expr = expr[3:]
		default:
			b.WriteString(expr[:2])
			expr = expr[2:]
		}
	}
	return b.String() + expr
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// matches reports whether expr matches somewhere in s.
func (g *generator) matches(expr, s string) bool {
	p := g.pattern(expr)
	return p == nil || g.spend(1+len(s)*p.size/1024) && p.expr.MatchString(s)
}

// example returns a string that p is likely to match, of at least so many
// characters if that can be, and another for each variant.
func (p *pattern) example(variant, least int) (string, bool) {
	if p == nil {
		return "", false
	}
	w := writer{variant: variant, lacking: max(least, 1) - minLen(p.tree)}
	if !w.write(p.tree) {
		return "", false
	}
	return w.out.String(), true
}

// minLen returns how many characters a match of re has at least.
func minLen(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = 1
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		for _, sub := range re.Sub {
			n = min(n+minLen(sub), maxExample)
		}
	case syntax.OpRepeat:
		n = min(re.Min*minLen(re.Sub[0]), maxExample)
	case syntax.OpAlternate:
		n = minLen(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			n = min(n, minLen(sub))
		}
	}
	return n
}

// maxExample bounds the examples of patterns, in characters.
const maxExample = 1 << 16

// A writer writes an example of a regular expression.
type writer struct {
	out     strings.Builder
	size    int // in characters
	variant int // a number each of whose digits decides one class or alternative
	lacking int // how many characters more than the least it is to have
}

// write writes an example of re. It reports false if there is none, or if it
// is too long.
func (w *writer) write(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			w.rune(r)
		}
	case syntax.OpCharClass:
		return w.class(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return w.class([]rune{'a', 'z'})
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			if !w.write(sub) {
				return false
			}
		}
	case syntax.OpAlternate:
		return w.write(re.Sub[w.decide(len(re.Sub))])
	case syntax.OpStar:
		return w.repeat(re.Sub[0], 0, -1)
	case syntax.OpPlus:
		return w.repeat(re.Sub[0], 1, -1)
	case syntax.OpQuest:
		return w.repeat(re.Sub[0], 0, 1)
	case syntax.OpRepeat:
		return w.repeat(re.Sub[0], re.Min, re.Max)
	}
	return w.size <= maxExample // assertions are left to luck
}

// repeat writes sub as often as it must, and more while characters are lacking.
func (w *writer) repeat(sub *syntax.Regexp, least, most int) bool {
	for i := 0; i < least || w.lacking > 0 && (most < 0 || i < most); i++ {
		before := w.size
		if !w.write(sub) {
			return false
		}
		if i >= least {
			if w.size == before {
				break
			}
			w.lacking -= w.size - before
		}
	}
	return true
}

// liked are the characters that examples are made of if they can: those that
// are easy to read, the easiest first.
var liked = [][2]rune{{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}

// class writes a character that is in one of the ranges.
func (w *writer) class(ranges []rune) bool {
	var choice [][2]rune
	count := 0
	for _, l := range liked {
		for i := 0; i+1 < len(ranges); i += 2 {
			if low, high := max(ranges[i], l[0]), min(ranges[i+1], l[1]); low <= high {
				choice = append(choice, [2]rune{low, high})
				count += int(high-low) + 1
			}
		}
	}
	if count == 0 {
		return w.printable(ranges)
	}
	n := rune(w.decide(count))
	for _, c := range choice {
		if size := c[1] - c[0] + 1; n >= size {
			n -= size
			continue
		}
		w.rune(c[0] + n)
		break
	}
	return w.size <= maxExample
}

// printable writes the first character of ranges that can be seen, if there is
// one among the first of a range, or any.
func (w *writer) printable(ranges []rune) bool {
	if len(ranges) == 0 {
		return false
	}
	best := ranges[0]
search:
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= min(ranges[i+1], ranges[i]+512); r++ {
			if unicode.IsPrint(r) {
				best = r
				break search
			}
		}
	}
	w.rune(best)
	return w.size <= maxExample
}

// decide returns one of n numbers, as the variant has it.
func (w *writer) decide(n int) int {
	d := w.variant % n
	w.variant /= n
	return d
}

func (w *writer) rune(r rune) {
	w.out.WriteRune(r)
	w.size++
}
