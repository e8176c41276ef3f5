// Package tier leaves tests that need more than Go out of "make check", which is go test with
// -short. "make test" runs all of them.
package tier

import "testing"

// Needs skips the test under -short, because it needs a program other than Go, such as
// "Redis". scripts/check.sh counts the tests by program.
func Needs(tb testing.TB, program string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("make check leaves this out: needs " + program)
	}
}
