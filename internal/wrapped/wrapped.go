// Package wrapped finds values behind the wrappers around them.
package wrapped

import "context"

// maxWrappers bounds a chain of wrappers, which may have no end by mistake.
const maxWrappers = 100

// Find returns the first T among v and what it wraps, which next returns. next reports false if a value
// wraps nothing.
func Find[T, V any](v V, next func(V) (V, bool)) (found T, ok bool) {
	return FindBefore[T, none](v, next)
}

// none is an interface that nothing implements.
type none interface{ none() }

// FindBefore is Find, but it does not look behind the first Stop. That may be a T itself.
func FindBefore[T, Stop, V any](v V, next func(V) (V, bool)) (found T, ok bool) {
	for range maxWrappers {
		if found, ok = any(v).(T); ok {
			return found, true
		}
		if _, stops := any(v).(Stop); stops {
			break
		}
		if v, ok = next(v); !ok {
			break
		}
	}
	return found, false
}

// NextBackend is the next of Find for Backends whose type is not known below package llmhttp, which sets it
// when it is initialized. A wrapper has that type in its Unwrap, so that there is none in a program without
// llmhttp.
var NextBackend = func(context.Context, any) (any, bool) { return nil, false }

// Next returns the next of FindBefore for Backends, whose method Unwrap gets ctx.
func Next[B any](ctx context.Context) func(B) (B, bool) {
	return func(b B) (B, bool) {
		wrapper, ok := any(b).(interface{ Unwrap(ctx context.Context) B })
		if !ok {
			var none B
			return none, false
		}
		return wrapper.Unwrap(ctx), true
	}
}
