// Package responsestore is what stores of responses and package responses have in common, so
// that a store need not import the protocol. To a store, responses and items are bytes.
//
//	var store responsestore.Store = memory.NewResponseStore()
//	protocol := responses.New(&responses.Options{Store: store})
package responsestore

import (
	"context"
	"errors"
	"time"
)

// A Store stores the responses of the protocol in package responses, so that clients can
// continue a conversation from the ID of a response.
//
// A response belongs to an account: for another account it does not exist. A
// store should bound what an account stores, and delete the oldest responses of an
// account that exceeds the bound, but none of other accounts. A Store must be
// safe for concurrent use.
type Store interface {
	// SaveResponse stores r. When it returns nil, r survives the end of the
	// process if the store is on disk. Saving a response of the same account and
	// ID again replaces it. SaveResponse must not retain or modify r.
	SaveResponse(ctx context.Context, r *Response) error

	// LoadResponse returns a response of an account. If the account has no
	// response with the ID, or if it has expired, the error wraps
	// [ErrNotFound]. The caller must not modify the response.
	LoadResponse(ctx context.Context, account, id string) (*Response, error)

	// LoadTurn is LoadResponse without the Body, which a request that continues
	// the response does not need. If the Bodies of the items together have more
	// than maxBytes bytes, the error wraps [ErrItemsTooLarge]; the store must not
	// load them to find that out.
	LoadTurn(ctx context.Context, account, id string, maxBytes int) (*Response, error)

	// LoadItems returns those items with the given IDs that are in responses of an account, at most
	// one for each ID, in any order. If several items have the same ID, any of them is returned.
	// Items of expired and deleted responses do not exist. If the Bodies of the items together have
	// more than maxBytes bytes, the error wraps [ErrItemsTooLarge]; the store must stop loading as
	// soon as it knows. The caller must not modify what it returns, and may keep an item without
	// keeping other items in memory.
	LoadItems(ctx context.Context, account string, ids []string, maxBytes int) ([]Item, error)

	// DeleteResponse deletes a response of an account and its items. If the
	// account has no response with the ID, the error wraps [ErrNotFound].
	DeleteResponse(ctx context.Context, account, id string) error
}

var (
	// ErrNotFound is returned by a [Store] for an unknown response.
	ErrNotFound = errors.New("responsestore: no such response")

	// ErrItemsTooLarge is returned by a [Store] for items that are larger than the caller permits.
	ErrItemsTooLarge = errors.New("responsestore: the items are too large")
)

// A Response is a response in a [Store].
type Response struct {
	ID       string
	Account  string
	Previous string    // the ID of the response that this one continues; "" if none
	Created  time.Time // stores may round times down to microseconds
	Expires  time.Time // when the store may delete the response; zero means never
	Body     []byte    // JSON of the response without its items
	Input    []Item    // the items of the request, in order, without those of earlier responses
	Output   []Item    // the items of the reply, in order
}

// A Item is an item of a response.
type Item struct {
	ID   string // not unique: a client may send an item again
	Body []byte // JSON
}
