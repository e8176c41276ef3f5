package responses

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// Bounds on the conversation that previous_response_id continues.
const (
	maxHistory      = 4096     // responses
	maxHistoryBytes = 64 << 20 // size of their items
)

// stores reports whether the response to r is stored. The default is true, as in
// OpenAI's service.
func (p *protocol) stores(r *request) bool {
	return p.opts.Store != nil && (r.body.Store == nil || *r.body.Store)
}

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
	var ids []string
	for i := range items {
		if items[i].Type != itemReference {
			continue
		}
		if items[i].ID == "" {
			return missingParam(memberPath(items[i].path, "id"))
		}
		if p.opts.Store == nil {
			return badRequest("item_not_found", memberPath(items[i].path, "id"),
				"Item '%s' is not stored, because this server stores no responses. Use 'store': false and send the item itself.", clip(items[i].ID))
		}
		ids = append(ids, items[i].ID)
	}
	if ids == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	slices.Sort(ids)
	found, err := p.opts.Store.LoadItems(ctx, account, slices.Compact(ids))
	if err != nil {
		return storeError(err)
	}
	bodies := make(map[string][]byte, len(found))
	for _, item := range found {
		bodies[item.ID] = item.Body
	}
	for i := range items {
		if items[i].Type != itemReference {
			continue
		}
		body, ok := bodies[items[i].ID]
		if !ok {
			return badRequest("item_not_found", memberPath(items[i].path, "id"), "Item with id '%s' not found.", clip(items[i].ID))
		}
		if items[i], err = newInputItem(body, items[i].path); err != nil {
			return err
		}
	}
	return nil
}

// storedInput returns the items of a request in the form in which they are stored.
// Each item has an ID and a type, and the content of messages is a list of parts.
func storedInput(items []inputItem) ([]llmhttp.StoredItem, error) {
	stored := make([]llmhttp.StoredItem, len(items))
	for i := range items {
		item := &items[i]
		if item.ID == "" {
			prefix := idPrefixes[item.Type]
			if prefix == "" {
				prefix = "item_"
			}
			item.ID = newID(prefix)
		}
		members := make(map[string]jsontext.Value)
		if err := decode(item.raw, item.path, &members); err != nil {
			return nil, err
		}
		members["id"], members["type"] = appendString(nil, item.ID), appendString(nil, item.Type)
		if content := members["content"]; item.Type == itemMessage && content.Kind() == '"' {
			members["content"] = textContent(item.Role, content)
		}
		body, err := marshal(members)
		if err != nil {
			return nil, err
		}
		stored[i] = llmhttp.StoredItem{ID: item.ID, Body: body}
	}
	return stored, nil
}

// textContent returns a list of parts with one text, which is a JSON string.
func textContent(role string, text jsontext.Value) jsontext.Value {
	if role == string(llmhttp.RoleAssistant) {
		return slices.Concat(jsontext.Value(`[{"type":"output_text","text":`), text, jsontext.Value(`,"annotations":[],"logprobs":[]}]`))
	}
	return slices.Concat(jsontext.Value(`[{"type":"input_text","text":`), text, jsontext.Value(`}]`))
}
