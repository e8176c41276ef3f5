// Arguments of statements.

package sqlstore

import (
	"fmt"
	"strings"
)

// sqlArgs are the arguments of an SQL statement: the values of $1, $2 and so on.
type sqlArgs []any

// add adds a value and returns its placeholder.
func (a *sqlArgs) add(value any) string {
	*a = append(*a, value)
	return fmt.Sprint("$", len(*a))
}

// addList adds values to a and returns a list of their placeholders in parentheses.
func addList[V any](a *sqlArgs, values []V) string {
	placeholders := make([]string, len(values))
	for i, v := range values {
		placeholders[i] = a.add(v)
	}
	return "(" + strings.Join(placeholders, ", ") + ")"
}
