package llmhttp

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A Model is an entry of the model list. It is decoded leniently: see
// [ChatChunk].
type Model struct {
	ID      string `json:"id"`      // the name that requests use; may contain slashes
	Created int64  `json:"created"` // Unix time in seconds
	OwnedBy string `json:"owned_by"`
	Extra   Extra  `json:"-"`
}

var modelJSON = jsonwire.NewObject(
	jsonwire.PlainString("id", func(m *Model) *string { return &m.ID }).Always(),
	objectField(objectModel, func(m *Model) *Extra { return &m.Extra }),
	jsonwire.Int("created", func(m *Model) *int64 { return &m.Created }).Always(),
	jsonwire.PlainString("owned_by", func(m *Model) *string { return &m.OwnedBy }).Always(),
	jsonwire.Extra(func(m *Model) *Extra { return &m.Extra }),
).Reserve(objectError).AfterDecode(func(m *Model) { wrapErrorMembers(&m.Extra) })

// MarshalJSON encodes m.
func (m Model) MarshalJSON() ([]byte, error) { return marshal(modelJSON, &m) }

// UnmarshalJSON decodes a model leniently.
func (m *Model) UnmarshalJSON(data []byte) error { return unmarshalReply(data, modelJSON, m) }

// A modelList is the reply to GET /v1/models.
type modelList struct{ data []Model }

var modelListJSON = jsonwire.NewObject(
	constantField[modelList]("object", objectList),
	jsonwire.List("data", func(l *modelList) *[]Model { return &l.data }, modelJSON, 0).Always(),
)

// serveModels serves GET /v1/models: those that the key may use.
func serveModels(q *request) error {
	models, err := listModels(q)
	if err != nil {
		return err
	}
	return replyTyped(q, modelListJSON, &modelList{models})
}

// serveModel serves GET /v1/models/{id}.
func serveModel(q *request) error {
	id := q.r.PathValue("id")
	models, err := listModels(q)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(models, func(m Model) bool { return m.ID == id })
	if i < 0 {
		return ModelNotFound(id)
	}
	return replyTyped(q, modelJSON, &models[i])
}

// listModels returns the models that the key may use.
func listModels(q *request) ([]Model, error) {
	models, err := callUnrecorded(q, func(context.Context) ([]Model, error) { return allowedModels(q) })
	if err != nil {
		return nil, err
	}
	return models, q.life.endCause()
}

// allowedModels asks the Backend for its models and returns those that the key may
// use.
func allowedModels(q *request) ([]Model, error) {
	q.idle.expect(true)
	models, err := q.h.backend.ListModels(q.life.ctx)
	if err != nil {
		q.observer.stepClass = ClassBackend // for ListModels, which is called by a Protocol
		return nil, err
	}
	allowed := make([]Model, 0, len(models))
	for _, m := range models {
		if q.key.AllowsModel(m.ID) {
			allowed = append(allowed, m)
		}
	}
	return allowed, nil
}
