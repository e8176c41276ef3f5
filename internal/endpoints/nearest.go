package endpoints

import (
	"slices"
	"strings"
)

// Nearest returns the one of known for which s may be a typing error, or "" if there is none or s is one
// of them.
func Nearest(s string, known []string) string {
	if slices.Contains(known, s) {
		return ""
	}
	nearest := ""
	for _, k := range known {
		if isMistakeFor(s, k) && (nearest == "" || editDistance(s, k) < editDistance(s, nearest)) {
			nearest = k
		}
	}
	return nearest
}

// isMistakeFor reports whether s may have been typed for want: if it is the beginning of it, or differs
// in one letter, or in two of a long word.
func isMistakeFor(s, want string) bool {
	const long = 6
	most := 1
	if min(len(s), len(want)) >= long {
		most = 2
	}
	return len(s) >= 4 && strings.HasPrefix(want, s) || editDistance(s, want) <= most
}

// editDistance returns how many bytes must be inserted, removed or replaced to make a of b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // distances of a prefix of a to all prefixes of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
