// The conversation that a request continues. Such a request is converted twice: first without stored
// items, so that ReserveChat can check the limits of the key before anything is loaded.

package responses

import (
	"context"
	"errors"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/responsestore"
)

// Bounds on what a request can load from the store with a few bytes.
const (
	maxHistory      = 4096     // responses that previous_response_id continues
	maxHistoryItems = 65_536   // items of these
	maxHistoryBytes = 64 << 20 // size of these items, and of the items that references name
)

// loadsItems reports whether the request continues a response or refers to items.
func (r *request) loadsItems() bool {
	isReference := func(item inputItem) bool { return item.Type == itemReference }
	return r.body.PreviousResponseID != nil || slices.ContainsFunc(r.items, isReference)
}

// loadHistory returns the items of the response id and of the responses before it, and the
// ID of the first response, which is the ID of the conversation. It loads no response
// beyond the bounds.
func (p *protocol) loadHistory(ctx context.Context, account, id string) (items []inputItem, first string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var turns []*responsestore.Response
	count, left := 0, maxHistoryBytes
	for id != "" {
		r, err := p.opts.Store.LoadTurn(ctx, account, id, left)
		if err != nil {
			return nil, "", historyError(id, err)
		}
		turns, first, id = append(turns, r), r.ID, r.Previous
		count += len(r.Input) + len(r.Output)
		size := itemBytes(r.Input) + itemBytes(r.Output)
		left -= size
		llmhttp.CountLoaded(ctx, size)
		if len(turns) > maxHistory || count > maxHistoryItems || left < 0 {
			return nil, "", historyError(id, responsestore.ErrItemsTooLarge)
		}
	}
	items = make([]inputItem, 0, count)
	for _, r := range slices.Backward(turns) {
		for _, stored := range slices.Concat(r.Input, r.Output) {
			item, err := newInputItem(stored.Body, historyPath)
			if err != nil {
				return nil, "", err
			}
			items = append(items, item)
		}
	}
	return items, first, nil
}

// historyPath is the path of items of the responses that a request continues.
const historyPath = "previous_response_id"

// historyError returns the error for the client after the store has failed with err to load
// the response with the given ID, which a request continues.
func historyError(id string, err error) error {
	switch {
	case errors.Is(err, responsestore.ErrNotFound):
		return invalid.Param("previous_response_not_found", historyPath, "Previous response with id '%s' not found.", clip(id))
	case errors.Is(err, responsestore.ErrItemsTooLarge):
		return invalid.Param("context_length_exceeded", historyPath, "The conversation is too long to be continued.")
	}
	return storeError(err)
}

// resolveReferences replaces references to items by the items that they refer to.
func (p *protocol) resolveReferences(ctx context.Context, account string, items []inputItem) error {
	ids := referencedIDs(items)
	if ids == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found, err := p.opts.Store.LoadItems(ctx, account, ids, maxHistoryBytes)
	if errors.Is(err, responsestore.ErrItemsTooLarge) {
		llmhttp.CountLoaded(ctx, maxHistoryBytes) // what the store may have loaded to find that out
		return errReferencesTooLong()
	}
	if err != nil {
		return storeError(err)
	}
	llmhttp.CountLoaded(ctx, itemBytes(found))
	bodies := make(map[string][]byte, len(found))
	for _, item := range found {
		bodies[item.ID] = item.Body
	}
	size := 0
	for i, item := range items {
		if item.Type != itemReference {
			continue
		}
		body, ok := bodies[item.ID]
		if !ok {
			return invalid.Param("item_not_found", item.memberPath("id"), "Item with id '%s' not found.", clip(item.ID))
		}
		if size += len(body); size > maxHistoryBytes { // several references may name the same item
			return errReferencesTooLong()
		}
		if items[i], err = newInputItem(body, item.path); err != nil {
			return err
		}
	}
	return nil
}

// itemBytes returns the size of items.
func itemBytes(items []responsestore.Item) int {
	n := 0
	for i := range items {
		n += len(items[i].Body)
	}
	return n
}

func errReferencesTooLong() error {
	return invalid.Param("context_length_exceeded", "input", "The items that 'input' refers to are too long.")
}

// checkReferences checks the items that are references. stored tells whether there is a store.
func checkReferences(items []inputItem, stored bool) error {
	for _, item := range items {
		switch {
		case item.Type != itemReference:
		case item.ID == "":
			return invalid.Missing(item.memberPath("id"))
		case !stored:
			return invalid.Param(
				"item_not_found",
				item.memberPath("id"),
				"Item '%s' is not stored, because this server stores no responses. Use 'store': false and send the item itself.",
				clip(item.ID),
			)
		}
	}
	return nil
}

// referencedIDs returns the distinct IDs of the items that are references. Without
// references it returns nil.
func referencedIDs(items []inputItem) []string {
	var ids []string
	for _, item := range items {
		if item.Type == itemReference {
			ids = append(ids, item.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
