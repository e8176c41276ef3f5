package llmhttp

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Model is an entry of the model list. It is decoded leniently: see
// [ChatChunk].
type Model struct {
	ID string `json:"id"` // the name that requests use; may contain slashes
	modelHead
	Created int64  `json:"created"` // Unix time in seconds
	OwnedBy string `json:"owned_by"`
	Extra   Extra  `json:",embed"`
}

type modelFields Model

func (m *Model) fields() any { return (*modelFields)(m) }

// forgive ignores names that are not strings.
func (m *Model) forgive(d *decoder, dec *jsontext.Decoder) error {
	view := struct {
		ID      json.RawMessage `json:"id"`
		OwnedBy json.RawMessage `json:"owned_by"`
		Model   *modelFields    `json:",embed"`
	}{Model: (*modelFields)(m)}
	err := jsonv2.UnmarshalDecode(dec, &view)
	m.ID, m.OwnedBy = textOf(view.ID), textOf(view.OwnedBy)
	return err
}

func (m *Model) finish(d *decoder) error { return d.finishReply(&m.Extra) }

// MarshalJSON encodes m.
func (m Model) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON decodes a model leniently.
func (m *Model) UnmarshalJSON(data []byte) error { return unmarshalReply(data, m) }

const objectList = "list"

// A modelList is the reply to GET /v1/models.
type modelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// serveModels serves GET /v1/models: those that the key may use.
func serveModels(q *request) error {
	models, err := listModels(q)
	if err != nil {
		return err
	}
	return q.replyJSON(&modelList{Object: objectList, Data: models})
}

// serveModel serves GET /v1/models/{id}.
func serveModel(q *request) error {
	id := q.r.PathValue("id")
	models, err := listModels(q)
	if err != nil {
		return err
	}
	for i := range models {
		if models[i].ID == id {
			return q.replyJSON(&models[i])
		}
	}
	return ModelNotFound(id)
}

// listModels returns the models that the key may use.
func listModels(q *request) ([]Model, error) {
	if err := q.beginBackendCall(); err != nil {
		return nil, err
	}
	models, err := allowedModels(q)
	q.res.backendReturned()
	if err != nil {
		return nil, q.life.endedOr(err)
	}
	return models, q.life.ended()
}

// allowedModels asks the Backend for its models and returns those that the key may
// use.
func allowedModels(q *request) ([]Model, error) {
	models, err := q.h.backend.ListModels(q.life.ctx)
	if err != nil {
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
