package responses

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
)

// stores reports whether the response to r is stored. The default is true, as in
// OpenAI's service.
func (p *protocol) stores(r *request) bool {
	return p.opts.Store != nil && (r.body.Store == nil || *r.body.Store)
}

// SaveReply returns a function that stores the response.
func (e *encoder) SaveReply(u *llmhttp.Usage, extra llmhttp.Extra) func(context.Context) error {
	if !e.p.stores(e.req) {
		return nil
	}
	e.finish(u, extra)
	stored := &llmhttp.StoredResponse{
		ID: e.id, Account: e.req.account, Created: time.Now(),
		Body: append(e.appendHead(nil), '}'), Input: e.req.items,
	}
	if previous := e.req.body.PreviousResponseID; previous != nil {
		stored.Previous = *previous
	}
	if e.p.opts.KeepFor > 0 {
		stored.Expires = stored.Created.Add(e.p.opts.KeepFor)
	}
	for _, it := range e.output.items {
		stored.Output = append(stored.Output, llmhttp.StoredItem{ID: it.id, Body: it.append(nil, true)})
	}
	store := e.p.opts.Store
	return func(ctx context.Context) error {
		if err := store.SaveResponse(ctx, stored); err != nil {
			return &llmhttp.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
				Message: "We could not store the response. Please try again.", Err: err}
		}
		return nil
	}
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

// storeTimeout is how long the store may take to load what a request needs, or to
// delete a response.
const storeTimeout = 10 * time.Second

// storeError returns the error for the client after the store has failed with err.
func storeError(err error) error {
	if e := (*llmhttp.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &llmhttp.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Message: "We could not reach the stored responses. Please try again.", Err: err}
}

func accountOf(ctx context.Context) string {
	if key := llmhttp.KeyFrom(ctx); key != nil {
		return key.Account
	}
	return ""
}
