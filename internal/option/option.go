// Package option has the rules for options: zero means the default of a bound, and a negative value
// means that there is no bound; an interface that holds a nil pointer is a mistake, which a
// constructor tells.
//
// The zero value of an option is ready to use. Zero and negative mean the same in every option, limit
// and query, and the comment of each number tells both: a test in this package checks that.
//
//   - A bound on a size, a count or a time, such as MaxBody, Attempts and KeepFor: zero means the default,
//     or no limit if there is no sensible one; negative means no limit. See [Bound].
//   - A timeout: zero means the default; negative means no timeout.
//   - What can be switched off, such as KeepAlive, Backoff, ReadOn, KeyCache and ReserveCompletion: zero means
//     the default; negative means none.
//   - A limit of a key, such as Rate.N and Concurrent: zero means no limit; negative permits nothing.
//   - What has no meaning if it is negative, such as Target.Weight: zero means the default; negative is a
//     mistake.
//
// Sizes in bytes are int64. A text that sets a limit to 0 is a mistake, because the person may mean either no
// limit or nothing. A nil list of what a key may do means everything and an empty one nothing; stores keep
// the difference, and the kits check that.
//
// A mistake in the configuration is told when it is made, by the constructor or by a method Validate, and
// not to clients. The text names the field, as in "upstream: Options.Key and Options.KeyFunc are both set",
// and contains no secret. A constructor returns an error if its options are what operators configure, such as
// addresses, targets, passwords and names in a database, or if it reads or asks something: those of
// upstream, route, console, redislimit, sqlstore and otelllm. It panics if only the program's own code can be
// wrong, as NewHandler, usagebuffer.New and the protocols do, and http.ServeMux.Handle: a nil interface, or a
// value that the program should have checked where it came from. A constructor without mistakes to tell
// returns neither.
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
