// Names with wildcards.

package pricing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/modelname"
)

// names finds the value for a name: that of the name itself, or that of the most specific
// pattern which matches. In patterns, each * matches any text, including the empty one.
type names[T any] struct {
	exact    map[string]T
	patterns []pattern[T] // the most specific first
}

type pattern[T any] struct {
	text  string
	value T
}

// specificity returns the number of characters that a name must have to match a pattern. Of
// two patterns the one with more is the more specific.
func specificity(pattern string) int { return len(pattern) - strings.Count(pattern, "*") }

// add adds a name or a pattern.
func (n *names[T]) add(name string, value T) {
	if strings.Contains(name, "*") {
		n.patterns = append(n.patterns, pattern[T]{name, value})
		return
	}
	n.addExact(name, value)
}

func (n *names[T]) addExact(name string, value T) {
	if n.exact == nil {
		n.exact = make(map[string]T)
	}
	n.exact[name] = value
}

// ties sorts the patterns, and returns an error for each pattern that matches names which
// another one matches that is as specific.
func (n *names[T]) ties(what string) (mistakes []error) {
	slices.SortFunc(n.patterns, func(a, b pattern[T]) int {
		return cmp.Or(specificity(b.text)-specificity(a.text), strings.Compare(a.text, b.text))
	})
	for i, a := range n.patterns {
		for _, b := range n.patterns[i+1:] {
			if specificity(a.text) != specificity(b.text) {
				break
			}
			if overlap(a.text, b.text) {
				mistakes = append(
					mistakes,
					fmt.Errorf("pricing: %s %q: is as specific as %q, and a name can match both", what, b.text, a.text),
				)
			}
		}
	}
	return mistakes
}

func (n *names[T]) find(name string) (value T, ok bool) {
	if value, ok = n.exact[name]; ok {
		return value, true
	}
	for i := range n.patterns {
		if modelname.Match(n.patterns[i].text, name) {
			return n.patterns[i].value, true
		}
	}
	return value, false
}

// overlap reports whether a text matches both patterns.
func overlap(a, b string) bool {
	// In round i, reached[j] tells whether a text matches both a[:i] and b[:j].
	reached := make([]bool, len(b)+1)
	for i := range len(a) + 1 {
		previous := reached
		reached = make([]bool, len(b)+1)
		for j := range reached {
			switch {
			case i == 0 && j == 0:
				reached[j] = true
			case i > 0 && a[i-1] == '*', j > 0 && b[j-1] == '*': // matches nothing, or what the other pattern has there
				reached[j] = i > 0 && previous[j] || j > 0 && reached[j-1]
			default:
				reached[j] = i > 0 && j > 0 && a[i-1] == b[j-1] && previous[j-1]
			}
		}
	}
	return reached[len(b)]
}
