package messages

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A model is an entry of the model list.
type model struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"` // RFC 3339
}

// A modelPage is a page of the model list.
type modelPage struct {
	Data    []model `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"` // null if the page is empty
	LastID  *string `json:"last_id"`
}

const (
	defaultPage = 20
	maxPage     = 1000
)

func newModel(m *llmhttp.Model) model {
	created := time.Unix(m.Created, 0).UTC().Format(time.RFC3339)
	return model{Type: "model", ID: m.ID, DisplayName: m.ID, CreatedAt: created}
}

// listModels serves GET /v1/models.
func (p *protocol) listModels(ctx context.Context, r *http.Request, _ []byte) (any, error) {
	query := r.URL.Query()
	limit := defaultPage
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return nil, fieldError("limit", "Input should be an integer from 1 to %d", maxPage).forClient()
		}
		limit = n
	}
	models, err := llmhttp.ListModels(ctx)
	if err != nil {
		return nil, err
	}
	start, end := 0, len(models)
	if id := query.Get("after_id"); id != "" {
		start = indexModel(models, id) + 1
	}
	backward := query.Get("before_id") != ""
	if backward {
		end = max(start, indexModel(models, query.Get("before_id")))
	}
	page := models[start:end]
	list := modelPage{Data: []model{}, HasMore: len(page) > limit}
	switch {
	case !list.HasMore:
	case backward:
		page = page[len(page)-limit:]
	default:
		page = page[:limit]
	}
	for i := range page {
		list.Data = append(list.Data, newModel(&page[i]))
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return &list, nil
}

// indexModel returns the index of the model with the given ID, or -1.
func indexModel(models []llmhttp.Model, id string) int {
	return slices.IndexFunc(models, func(m llmhttp.Model) bool { return m.ID == id })
}

// getModel serves GET /v1/models/{id}.
func (p *protocol) getModel(ctx context.Context, r *http.Request, _ []byte) (any, error) {
	id := p.servedModel(r.PathValue("id"))
	models, err := llmhttp.ListModels(ctx)
	if err != nil {
		return nil, err
	}
	if i := indexModel(models, id); i >= 0 {
		return newModel(&models[i]), nil
	}
	return nil, llmhttp.ModelNotFound(id)
}
