package llmhttp

import (
	"context"
	"errors"
	"time"
)

// A ResponseStore stores the responses of the protocol in package responses, so
// that clients can continue a conversation from the ID of a response. It is in
// this package so that stores need not import the protocol.
//
// A response belongs to an account: for another account it does not exist. A
// ResponseStore must be safe for concurrent use.
type ResponseStore interface {
	// SaveResponse stores r. When it returns nil, r survives the end of the
	// process if the store is on disk. Saving a response of the same account and
	// ID again replaces it. SaveResponse must not retain or modify r.
	SaveResponse(ctx context.Context, r *StoredResponse) error

	// LoadResponse returns the response of an account, or an error wrapping
	// [ErrResponseNotFound] if there is none or if it has expired. The caller
	// must not modify what it returns.
	LoadResponse(ctx context.Context, account, id string) (*StoredResponse, error)

	// LoadItems returns those items with the given IDs that are in responses of an
	// account, at most one for each ID, in any order. If several items have
	// the same ID, any of them is returned. Items of expired and deleted
	// responses do not exist. The caller must not modify what it returns.
	LoadItems(ctx context.Context, account string, ids []string) ([]StoredItem, error)

	// DeleteResponse deletes a response of an account and its items, or returns
	// an error wrapping [ErrResponseNotFound] if there is none.
	DeleteResponse(ctx context.Context, account, id string) error
}

// ErrResponseNotFound is returned by a [ResponseStore] for an unknown response.
var ErrResponseNotFound = errors.New("llmhttp: no such response")

// A StoredResponse is a response in a [ResponseStore].
type StoredResponse struct {
	ID       string
	Account  string
	Previous string       // the ID of the response that this one continues; "" if none
	Created  time.Time    // stores may round times down to microseconds
	Expires  time.Time    // when the store may delete the response; zero means never
	Body     []byte       // JSON of the response without its items
	Input    []StoredItem // the items of the request, in order, without those of earlier responses
	Output   []StoredItem // the items of the reply, in order
}

// A StoredItem is an item of a response.
type StoredItem struct {
	ID   string // not unique: a client may send an item again
	Body []byte // JSON
}
