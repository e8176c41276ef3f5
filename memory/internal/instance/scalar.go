package instance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// numbersFor returns numbers near 1 or near the bounds of rules, and one between
// the bounds.
func (m *maker) numbersFor(variant int, rules []*jsonschema.Schema, integer bool) (list []any) {
	low, high := numberBounds(rules)
	unit := m.commonMultiple(rules)
	start := big.NewRat(1, 1)
	if unit == nil {
		unit = start
	} else if integer {
		unit = new(big.Rat).SetInt(unit.Num())
	}
	if low != nil && low.Cmp(start) > 0 {
		start = low
	}
	if high != nil && high.Cmp(start) < 0 {
		start = high
	}
	add := func(n *big.Rat) {
		digits, _ := n.FloatPrec() // n is a decimal, because all bounds are
		list = append(list, json.Number(n.FloatString(digits)))
	}
	for _, offset := range []int{variant, variant + 1, -variant, -variant - 1} {
		n := new(big.Rat).Quo(start, unit)
		ceiling := new(big.Int).Neg(new(big.Int).Div(new(big.Int).Neg(n.Num()), n.Denom()))
		add(n.Mul(unit, n.SetInt(ceiling.Add(ceiling, big.NewInt(int64(offset))))))
	}
	if low != nil && high != nil { // after a half, a quarter, ... of the range
		n := new(big.Rat).Sub(high, low)
		add(n.Add(low, n.Mul(n, big.NewRat(1, 2<<(variant%32)))))
	}
	return list
}

// numberBounds returns the strictest bounds of rules, exclusive or not. A missing bound
// is nil.
func numberBounds(rules []*jsonschema.Schema) (low, high *big.Rat) {
	for _, s := range rules {
		for _, b := range []*big.Rat{s.Minimum, s.ExclusiveMinimum} {
			if b != nil && (low == nil || b.Cmp(low) > 0) {
				low = b
			}
		}
		for _, b := range []*big.Rat{s.Maximum, s.ExclusiveMaximum} {
			if b != nil && (high == nil || b.Cmp(high) < 0) {
				high = b
			}
		}
	}
	return low, high
}

// commonMultiple returns a number whose multiples are multiples of each multipleOf in
// rules, or nil if no rule has a multipleOf.
func (m *maker) commonMultiple(rules []*jsonschema.Schema) (unit *big.Rat) {
	for _, s := range rules {
		switch {
		case unit == nil:
			unit = s.MultipleOf
		case s.MultipleOf != nil: // ac is a multiple of both a/b and c/d
			unit = new(big.Rat).SetInt(new(big.Int).Mul(unit.Num(), s.MultipleOf.Num()))
			m.spend(unit.Num().BitLen())
		}
	}
	return unit
}

// formats has an example of each format, for a number from 1 to 28.
var formats = map[string]string{
	"date":                  "2026-01-%02d",
	"date-time":             "2026-01-%02dT12:00:00Z",
	"time":                  "12:00:%02dZ",
	"duration":              "P%dD",
	"email":                 "user%d@example.com",
	"hostname":              "host%d.example.com",
	"ipv4":                  "192.0.2.%d",
	"ipv6":                  "2001:db8::%x",
	"uri":                   "https://example.com/%d",
	"iri":                   "https://example.com/%d",
	"uri-reference":         "https://example.com/%d",
	"iri-reference":         "https://example.com/%d",
	"uri-template":          "https://example.com/%d",
	"uuid":                  "00000000-0000-4000-8000-%012x",
	"json-pointer":          "/%d",
	"relative-json-pointer": "%d",
	"regex":                 ".{%d}",
}

// maxText bounds the text in a string, in code points. maxSparingText bounds it when
// the maker is sparing.
const (
	maxText        = 4096
	maxSparingText = 64
)

// stringsFor returns examples of the formats of rules, the text, and examples
// of the patterns of rules. If the text is empty, name takes its place.
func (m *maker) stringsFor(name string, variant int, rules []*jsonschema.Schema) (list []any) {
	least, most := 0, maxSteps
	for _, s := range rules {
		least = max(least, deref(s.MinLength, 0))
		most = min(most, deref(s.MaxLength, maxSteps))
		if s.Format != nil && formats[s.Format.Name] != "" {
			example := fmt.Sprintf(formats[s.Format.Name], 1+variant%28)
			m.examples[example] = true
			list = append(list, example)
		}
	}
	m.spend(least)
	text := cmp.Or(m.text, name, "text")
	limit := maxText
	if m.isSparing() {
		limit = maxSparingText
	}
	list = append(list, fit(text, variant, least, min(most, max(least, limit))))
	for _, s := range rules {
		if s.Pattern == nil {
			continue
		}
		if re, err := syntax.Parse(s.Pattern.String(), syntax.Perl); err == nil {
			list = append(list, m.patternExample(re))
		}
	}
	return list
}

// fit pads or cuts text so that it has at least least and at most most code
// points. It does not cut grapheme clusters. Variants but the first end in a
// number.
func fit(text string, variant, least, most int) string {
	suffix := ""
	if variant > 0 {
		suffix = " " + strconv.Itoa(variant+1)
	}
	size, end := len(suffix), 0
	for rest, state := text, -1; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if size+utf8.RuneCountInString(cluster) > most {
			break
		}
		size += utf8.RuneCountInString(cluster)
		end += len(cluster)
	}
	return text[:end] + strings.Repeat(".", max(0, least-size)) + suffix
}

// maxPattern bounds the length of a pattern in bytes: package regexp may need
// a thousand instructions for each.
const maxPattern = 1024

// A pattern is a regular expression of a schema.
type pattern struct {
	maker  *maker
	source string
	expr   *regexp.Regexp // nil if package regexp cannot express the pattern
	size   int            // instructions of expr
}

// compilePattern compiles a pattern. It returns no error for a pattern that
// package regexp cannot express: some generators of schemas put a pattern with
// lookahead beside each format.
func (m *maker) compilePattern(source string) (jsonschema.Regexp, error) {
	p := &pattern{maker: m, source: source}
	re, err := syntax.Parse(source, syntax.Perl)
	if err != nil || len(source) > maxPattern {
		return p, nil
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return p, nil
	}
	p.size = len(program.Inst)
	m.spend(4 * p.size)
	p.expr, err = regexp.Compile(source)
	return p, err
}

func (p *pattern) String() string { return p.source }

// MatchString reports whether p matches s. A pattern that package regexp cannot
// express matches only examples of formats.
func (p *pattern) MatchString(s string) bool {
	if p.expr == nil {
		return p.maker.examples[s]
	}
	p.maker.spend(1 + len(s)*p.size/1024)
	return p.expr.MatchString(s)
}

// patternExample returns a short string that re is likely to match. It ignores
// assertions such as \b.
func (m *maker) patternExample(re *syntax.Regexp) string {
	m.spend(1)
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
			b.WriteString(m.patternExample(sub))
		}
		return b.String()
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		return m.patternExample(re.Sub[0])
	case syntax.OpRepeat:
		example := m.patternExample(re.Sub[0])
		m.spend(re.Min * len(example))
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
