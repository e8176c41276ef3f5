// Package callctx has what packages llm, llmhttp, textfilter, upstream and agent share about a call of a Backend: the
// key under which its context has the request, and the errors of a Backend's mistakes.
package callctx

import (
	"context"
	"errors"
)

// Key is the key of a value that implements the interface servedRequest of package llm, and has the
// methods WarnMisuses, which package textfilter calls, RequestID, Conversation and UsageUnknown.
type Key struct{}

// RequestID returns the ID of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	if q, ok := ctx.Value(Key{}).(interface{ RequestID() string }); ok {
		return q.RequestID()
	}
	return ""
}

// Conversation returns the account and the conversation of the request that ctx belongs to. Both are ""
// if there is no request, or its Backend was not called yet.
func Conversation(ctx context.Context) (account, conversation string) {
	if q, ok := ctx.Value(Key{}).(interface{ Conversation() (string, string) }); ok {
		return q.Conversation()
	}
	return "", ""
}

// UsageUnknown tells that a server has reported to the Backend what the request that ctx belongs to has used, in a
// form that is not known. err says so to the log. If the Backend reports no usage, the record has an estimate.
func UsageUnknown(ctx context.Context, err error) {
	if q, ok := ctx.Value(Key{}).(interface{ UsageUnknown(error) }); ok {
		q.UsageUnknown(err)
	}
}

// Errors of streams.
var (
	ErrNilStream = errors.New("llmhttp: the Backend returned a nil ChatStream")
	ErrNoChunk   = errors.New("llmhttp: the stream ended without a chunk or an error")
)
