package llmhttp

// StoreAs returns s as a T if it is one, and otherwise what it wraps: it calls the method
//
//	Unwrap() llmhttp.UsageStore
//
// of s, if there is one, and of what that returns, until it finds a T. A Handler, [Serve] and a
// console look for the abilities of Options.Usage with it, such as those of a [QuotaEventStore]. So a
// wrapper needs no methods but those that it changes, and one that must not be bypassed has no Unwrap.
// A UsageBuffer has none: see package manage for what reports usage behind it. s may be nil.
func StoreAs[T any](s UsageStore) (T, bool) { return unwrapAs[T](s) }

// LimiterAs is [StoreAs] for a Limiter, whose method is
//
//	Unwrap() llmhttp.Limiter
//
// A Handler looks for a [ConcurrencyLimiter] and a [Reserver] with it.
func LimiterAs[T any](l Limiter) (T, bool) { return unwrapAs[T](l) }

// unwrapAs returns the first T among v and what it wraps.
func unwrapAs[T, V any](v V) (found T, ok bool) {
	for {
		if found, ok = any(v).(T); ok {
			return found, true
		}
		wrapper, ok := any(v).(interface{ Unwrap() V })
		if !ok {
			return found, false
		}
		v = wrapper.Unwrap()
	}
}
