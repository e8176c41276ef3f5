// The paths of stored responses.

package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsestore"
)

// retrieve serves GET /v1/responses/{id}.
func (p *protocol) retrieve(ctx context.Context, r *http.Request) (any, error) {
	query := r.URL.Query()
	if query.Get("stream") == "true" {
		return nil, unsupportedParam("stream", "Stored responses cannot be streamed.")
	}
	stored, err := p.loadResponse(ctx, r, true)
	if err != nil {
		return nil, err
	}
	items, err := encodeItems(stored.Output, queryIncludes(query, includeEncrypted))
	if err != nil {
		return nil, err
	}
	body := slices.Concat(bytes.TrimSuffix(stored.Body, []byte("}")), []byte(`,"output":`), items, []byte("}"))
	return json.RawMessage(body), nil
}

// loadResponse returns the stored response whose ID is in the path of r, with or without
// its Body.
func (p *protocol) loadResponse(ctx context.Context, r *http.Request, withBody bool) (stored *responsestore.Response, err error) {
	id := r.PathValue("id")
	if p.opts.Store == nil {
		return nil, responseError(id, responsestore.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if withBody {
		stored, err = p.opts.Store.LoadResponse(ctx, accountOf(ctx), id)
	} else {
		stored, err = p.opts.Store.LoadTurn(ctx, accountOf(ctx), id, math.MaxInt)
	}
	if err != nil {
		return nil, responseError(id, err)
	}
	return stored, nil
}

// responseError returns the error for the client after the store has failed with err to
// find the response with the given ID.
func responseError(id string, err error) error {
	if errors.Is(err, responsestore.ErrNotFound) {
		return llm.Errorf(http.StatusNotFound, "", "Response with id '%s' not found.", clip(id))
	}
	return storeError(err)
}

// queryIncludes reports whether the include parameter of a query has the value what.
func queryIncludes(query url.Values, what string) bool {
	return slices.Contains(query["include"], what) || slices.Contains(query["include[]"], what)
}

// encodeItems returns stored items as a JSON array. encrypted tells whether to include
// encrypted_content.
func encodeItems(items []responsestore.Item, encrypted bool) ([]byte, error) {
	b := []byte("[")
	for i := range items {
		body := items[i].Body
		if !encrypted {
			var err error
			if body, err = withoutEncrypted(body); err != nil {
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

// withoutEncrypted returns a stored item without the encrypted_content of reasoning.
func withoutEncrypted(body []byte) ([]byte, error) {
	if !bytes.Contains(body, []byte(sealedPrefix)) {
		return body, nil
	}
	members := make(map[string]jsonwire.Value)
	if err := decode(body, "", &members); err != nil {
		return nil, err
	}
	if members["type"] != `"`+itemReasoning+`"` {
		return body, nil
	}
	delete(members, "encrypted_content")
	return marshal(members)
}

// delete serves DELETE /v1/responses/{id}.
func (p *protocol) delete(ctx context.Context, r *http.Request) (any, error) {
	id := r.PathValue("id")
	if p.opts.Store == nil {
		return nil, responseError(id, responsestore.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := p.opts.Store.DeleteResponse(ctx, accountOf(ctx), id); err != nil {
		return nil, responseError(id, err)
	}
	return &deletedResponse{ID: id, Object: "response", Deleted: true}, nil
}

type deletedResponse struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// cancel serves POST /v1/responses/{id}/cancel. It always fails, because no response
// runs in the background.
func (p *protocol) cancel(ctx context.Context, r *http.Request) (any, error) {
	if _, err := p.loadResponse(ctx, r, false); err != nil && p.opts.Store != nil {
		return nil, err
	}
	return nil, llm.Errorf(http.StatusBadRequest, "", "Only responses in the background can be cancelled, and this server has none.")
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
func (p *protocol) listInput(ctx context.Context, r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := pageLimit(query)
	if err != nil {
		return nil, err
	}
	order := query.Get("order")
	if order != "" && order != "asc" && order != "desc" {
		return nil, invalid.Param("invalid_value", "order", "Invalid value for 'order'. Supported values are: 'asc' and 'desc'.")
	}
	stored, err := p.loadResponse(ctx, r, false)
	if err != nil {
		return nil, err
	}
	items := slices.Clone(stored.Input)
	if order != "asc" {
		slices.Reverse(items)
	}
	if after := query.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(item responsestore.Item) bool { return item.ID == after })
		if i < 0 {
			return nil, invalid.Param("invalid_value", "after", "Item with id '%s' not found.", clip(after))
		}
		items = items[i+1:]
	}
	return newItemPage(items, limit, queryIncludes(query, includeEncrypted))
}

// pageLimit returns the limit parameter of a query.
func pageLimit(query url.Values) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, invalid.Param("invalid_value", "limit", "Invalid 'limit': expected an integer from 1 to %d.", maxPage)
	}
	return n, nil
}

// newItemPage returns the page with the first items. encrypted tells whether to include
// encrypted_content.
func newItemPage(items []responsestore.Item, limit int, encrypted bool) (*itemPage, error) {
	page := &itemPage{Object: "list", HasMore: len(items) > limit}
	items = items[:min(len(items), limit)]
	if len(items) > 0 {
		page.FirstID, page.LastID = &items[0].ID, &items[len(items)-1].ID
	}
	var err error
	page.Data, err = encodeItems(items, encrypted)
	return page, err
}
