// Package callctx has the key under which the context of a call of a Backend has its request.
package callctx

// Key is the key of a value that implements the interface servedRequest of package llm.
type Key struct{}
