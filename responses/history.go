package responses

import (
	"context"
	"errors"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// Bounds on what a request can load from the store with a few bytes.
const (
	maxHistory      = 4096     // responses that previous_response_id continues
	maxHistoryBytes = 64 << 20 // size of their items, and of the items that references name
)

// addHistory adds the items of the response id and of the responses before it. The ID
// of the first response becomes the ID of the conversation.
func (p *protocol) addHistory(ctx context.Context, c *conversation, id string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var chain []*llmhttp.StoredResponse
	size := 0
	for id != "" {
		r, err := p.opts.Store.LoadResponse(ctx, c.account, id)
		if errors.Is(err, llmhttp.ErrResponseNotFound) {
			return badRequest("previous_response_not_found", "previous_response_id", "Previous response with id '%s' not found.", clip(id))
		}
		if err != nil {
			return storeError(err)
		}
		for _, item := range slices.Concat(r.Input, r.Output) {
			size += len(item.Body)
		}
		if chain = append(chain, r); len(chain) > maxHistory || size > maxHistoryBytes {
			return badRequest("context_length_exceeded", "previous_response_id", "The conversation is too long to be continued.")
		}
		id = r.Previous
	}
	if len(chain) > 0 {
		llmhttp.SetConversation(ctx, chain[len(chain)-1].ID)
	}
	for _, r := range slices.Backward(chain) {
		for _, stored := range slices.Concat(r.Input, r.Output) {
			item, err := newInputItem(stored.Body, "previous_response_id")
			if err != nil {
				return err
			}
			if err := c.addItem(&item); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolveReferences replaces references to items by the items that they refer to.
func (p *protocol) resolveReferences(ctx context.Context, account string, items []inputItem) error {
	ids, err := p.referencedIDs(items)
	if err != nil || ids == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found, err := p.opts.Store.LoadItems(ctx, account, ids)
	if err != nil {
		return storeError(err)
	}
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
			return badRequest("item_not_found", item.memberPath("id"), "Item with id '%s' not found.", clip(item.ID))
		}
		if size += len(body); size > maxHistoryBytes { // several references may name the same item
			return badRequest("context_length_exceeded", "input", "The items that 'input' refers to are too long.")
		}
		if items[i], err = newInputItem(body, item.path); err != nil {
			return err
		}
	}
	return nil
}

// referencedIDs returns the distinct IDs of the items that are references. Without
// references it returns nil.
func (p *protocol) referencedIDs(items []inputItem) ([]string, error) {
	var ids []string
	for _, item := range items {
		switch {
		case item.Type != itemReference:
			continue
		case item.ID == "":
			return nil, missingParam(item.memberPath("id"))
		case p.opts.Store == nil:
			return nil, badRequest("item_not_found", item.memberPath("id"),
				"Item '%s' is not stored, because this server stores no responses. Use 'store': false and send the item itself.", clip(item.ID))
		}
		ids = append(ids, item.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
