package instance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// numbersFor returns numbers near 1 or near the bounds of schemas, and one between
// the bounds.
func (m *maker) numbersFor(variant int, schemas []*jsonschema.Schema, integer bool) (list []any) {
	low, high := numberBounds(schemas)
	unit := m.commonMultiple(schemas)
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
	first := ceil(new(big.Rat).Quo(start, unit))
	for _, offset := range []int{variant, variant + 1, -variant, -variant - 1} {
		factor := new(big.Int).Add(first, big.NewInt(int64(offset)))
		add(new(big.Rat).Mul(unit, new(big.Rat).SetInt(factor)))
	}
	if low != nil && high != nil {
		share := big.NewRat(1, 2<<(variant%32)) // a half, a quarter, ... of the range
		width := new(big.Rat).Sub(high, low)
		add(new(big.Rat).Add(low, width.Mul(width, share)))
	}
	return list
}

// ceil returns the least integer that is not less than n.
func ceil(n *big.Rat) *big.Int {
	floor := new(big.Int).Div(new(big.Int).Neg(n.Num()), n.Denom()) // of -n
	return floor.Neg(floor)
}

// numberBounds returns the strictest bounds of schemas, exclusive or not. A missing bound
// is nil.
func numberBounds(schemas []*jsonschema.Schema) (low, high *big.Rat) {
	for _, s := range schemas {
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
// schemas, or nil if none has a multipleOf.
func (m *maker) commonMultiple(schemas []*jsonschema.Schema) (unit *big.Rat) {
	for _, s := range schemas {
		switch {
		case unit == nil:
			unit = s.MultipleOf
		case s.MultipleOf != nil: // ac is a multiple of both a/b and c/d
			unit = new(big.Rat).SetInt(new(big.Int).Mul(unit.Num(), s.MultipleOf.Num()))
			m.steps.spend(unit.Num().BitLen())
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

// maxText bounds the text in a string, in code points. maxLowText bounds it when the
// budget is low.
const (
	maxText    = 4096
	maxLowText = 64
)

// stringsFor returns examples of the formats of schemas, the text, and examples
// of the patterns of schemas. If the text is empty, the name of the property takes its
// place.
func (m *maker) stringsFor(property string, variant int, schemas []*jsonschema.Schema) (list []any) {
	least, most := 0, maxSteps
	for _, s := range schemas {
		least = max(least, deref(s.MinLength, 0))
		most = min(most, deref(s.MaxLength, maxSteps))
		if s.Format != nil && formats[s.Format.Name] != "" {
			example := fmt.Sprintf(formats[s.Format.Name], 1+variant%28)
			m.examples[example] = true
			list = append(list, example)
		}
	}
	m.steps.spend(least)
	text := cmp.Or(m.text, property, "text")
	limit := maxText
	if m.steps.isLow() {
		limit = maxLowText
	}
	list = append(list, fit(text, variant, least, min(most, max(least, limit))))
	for _, s := range schemas {
		if s.Pattern == nil {
			continue
		}
		if re, err := syntax.Parse(s.Pattern.String(), syntax.Perl); err == nil {
			list = append(list, patternExample(re, m.steps))
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
