// Package option has the rules for options: zero means the default of a bound, and a negative value
// means that there is no bound; an interface that holds a nil pointer is a mistake, which a
// constructor tells.
package option

// Bound returns the bound that an option sets: byDefault if n is zero, and the largest T, which
// nothing exceeds, if n is negative.
func Bound[T ~int | ~int64](n, byDefault T) T {
	switch {
	case n == 0:
		return byDefault
	case n < 0:
		return largest[T]()
	}
	return n
}

// largest returns the largest T.
func largest[T ~int | ~int64]() T {
	n := T(1)
	for n<<1 > 0 {
		n = n<<1 | 1
	}
	return n
}
