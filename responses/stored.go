package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// Bounds on the conversation that previous_response_id continues.
const (
	maxHistory      = 4096     // responses
	maxHistoryBytes = 64 << 20 // of their items
)

// storeTimeout is how long the store may take to load what a request needs.
const storeTimeout = 10 * time.Second

// stores reports whether the response to r is stored. It is by default, as with
// the original service.
func (p *protocol) stores(r *request) bool {
	return p.opts.Store != nil && (r.body.Store == nil || *r.body.Store)
}

// addHistory adds the items of the response id and of those before it. The ID of
// the first of them is that of the conversation.
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

// storeError returns what the client is told when the store fails.
func storeError(err error) error {
	if e := (*llmhttp.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &llmhttp.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Message: "We could not reach the stored responses. Please try again.", Err: err}
}

// resolve replaces references by the items that they refer to.
func (p *protocol) resolve(ctx context.Context, account string, items []inputItem) error {
	var ids []string
	for i := range items {
		if items[i].Type != itemReference {
			continue
		}
		if items[i].ID == "" {
			return missing(at(items[i].path, "id"))
		}
		if p.opts.Store == nil {
			return badRequest("item_not_found", at(items[i].path, "id"),
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
			return badRequest("item_not_found", at(items[i].path, "id"), "Item with id '%s' not found.", clip(items[i].ID))
		}
		if items[i], err = newInputItem(body, items[i].path); err != nil {
			return err
		}
	}
	return nil
}

// idPrefixes begin the IDs of items.
var idPrefixes = map[string]string{
	itemMessage: "msg_", itemReasoning: "rs_", itemCall: "fc_", itemCustom: "ctc_",
	itemCallOutput: "fco_", itemCustomOutput: "ctco_",
}

// storedInput returns the items of a request in the form in which they are stored:
// with an ID and a type, and messages with a list of parts.
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

// textContent returns content that is one text as a list of parts.
func textContent(role string, text jsontext.Value) jsontext.Value {
	if role == string(llmhttp.RoleAssistant) {
		return slices.Concat(jsontext.Value(`[{"type":"output_text","text":`), text, jsontext.Value(`,"annotations":[],"logprobs":[]}]`))
	}
	return slices.Concat(jsontext.Value(`[{"type":"input_text","text":`), text, jsontext.Value(`}]`))
}

func responseNotFound(id string) error {
	return llmhttp.Errorf(http.StatusNotFound, "", "Response with id '%s' not found.", clip(id))
}

func accountOf(ctx context.Context) string {
	if key := llmhttp.KeyFrom(ctx); key != nil {
		return key.Account
	}
	return ""
}

// load returns the stored response that a request is about.
func (p *protocol) load(ctx context.Context, r *http.Request) (*llmhttp.StoredResponse, error) {
	id := r.PathValue("id")
	if p.opts.Store == nil {
		return nil, responseNotFound(id)
	}
	stored, err := p.opts.Store.LoadResponse(ctx, accountOf(ctx), id)
	switch {
	case errors.Is(err, llmhttp.ErrResponseNotFound):
		return nil, responseNotFound(id)
	case err != nil:
		return nil, storeError(err)
	}
	return stored, nil
}

// retrieve serves GET /v1/responses/{id}.
func (p *protocol) retrieve(ctx context.Context, r *http.Request, _ []byte) (any, error) {
	query := r.URL.Query()
	if query.Get("stream") == "true" {
		return nil, unsupported("stream", "Stored responses cannot be streamed.")
	}
	stored, err := p.load(ctx, r)
	if err != nil {
		return nil, err
	}
	items, err := shown(stored.Output, includes(query, includeEncrypted))
	if err != nil {
		return nil, err
	}
	body := slices.Concat(bytes.TrimSuffix(stored.Body, []byte("}")), []byte(`,"output":`), items, []byte("}"))
	return json.RawMessage(body), nil
}

// includes reports whether a query asks for what is only sent on demand.
func includes(query url.Values, what string) bool {
	return slices.Contains(query["include"], what) || slices.Contains(query["include[]"], what)
}

// shown returns stored items as an array, with or without encrypted_content.
func shown(items []llmhttp.StoredItem, encrypted bool) ([]byte, error) {
	b := []byte("[")
	for i := range items {
		body := items[i].Body
		if !encrypted && bytes.Contains(body, []byte(sealedPrefix)) {
			members := make(map[string]jsontext.Value)
			if err := decode(body, "", &members); err != nil {
				return nil, err
			}
			delete(members, "encrypted_content")
			var err error
			if body, err = marshal(members); err != nil {
				return nil, err
			}
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, body...)
	}
	return append(b, ']'), nil
}

// delete serves DELETE /v1/responses/{id}.
func (p *protocol) delete(ctx context.Context, r *http.Request, _ []byte) (any, error) {
	id := r.PathValue("id")
	if p.opts.Store == nil {
		return nil, responseNotFound(id)
	}
	switch err := p.opts.Store.DeleteResponse(ctx, accountOf(ctx), id); {
	case errors.Is(err, llmhttp.ErrResponseNotFound):
		return nil, responseNotFound(id)
	case err != nil:
		return nil, storeError(err)
	}
	return &deleted{ID: id, Object: "response", Deleted: true}, nil
}

type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// cancel serves POST /v1/responses/{id}/cancel. No response is in the background.
func (p *protocol) cancel(ctx context.Context, r *http.Request, _ []byte) (any, error) {
	if _, err := p.load(ctx, r); err != nil && p.opts.Store != nil {
		return nil, err
	}
	return nil, llmhttp.Errorf(http.StatusBadRequest, "", "Only responses in the background can be cancelled, and this server has none.")
}

// The bounds of a page of input items.
const (
	defaultPage = 20
	maxPage     = 100
)

// An itemPage is a page of the input items of a response.
type itemPage struct {
	Object  string          `json:"object"`
	Data    json.RawMessage `json:"data"`
	FirstID *string         `json:"first_id"`
	LastID  *string         `json:"last_id"`
	HasMore bool            `json:"has_more"`
}

// listInput serves GET /v1/responses/{id}/input_items. The newest item is first,
// unless the query has order=asc.
func (p *protocol) listInput(ctx context.Context, r *http.Request, _ []byte) (any, error) {
	query := r.URL.Query()
	limit := defaultPage
	if s := query.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxPage {
			return nil, badRequest("invalid_value", "limit", "Invalid 'limit': expected an integer from 1 to %d.", maxPage)
		}
		limit = n
	}
	order := query.Get("order")
	if order != "" && order != "asc" && order != "desc" {
		return nil, badRequest("invalid_value", "order", "Invalid value for 'order'. Supported values are: 'asc' and 'desc'.")
	}
	stored, err := p.load(ctx, r)
	if err != nil {
		return nil, err
	}
	items := slices.Clone(stored.Input)
	if order != "asc" {
		slices.Reverse(items)
	}
	if after := query.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(item llmhttp.StoredItem) bool { return item.ID == after })
		if i < 0 {
			return nil, badRequest("invalid_value", "after", "Item with id '%s' not found.", clip(after))
		}
		items = items[i+1:]
	}
	page := &itemPage{Object: "list", HasMore: len(items) > limit}
	items = items[:min(len(items), limit)]
	if len(items) > 0 {
		page.FirstID, page.LastID = &items[0].ID, &items[len(items)-1].ID
	}
	page.Data, err = shown(items, includes(query, includeEncrypted))
	return page, err
}
