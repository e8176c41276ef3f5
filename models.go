package llmhttp

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Model is an entry of the model list. It is decoded leniently: see
// [ChatChunk].
type Model struct {
	ID string `json:"id"` // what requests name it by; may contain slashes
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

// models serves GET /v1/models: those the key may use.
func (x *exchange) models() error {
	list, err := x.listModels()
	if err != nil {
		return err
	}
	allowed := modelList{Object: objectList}
	for i := range list {
		if x.key.AllowsModel(list[i].ID) {
			allowed.Data = append(allowed.Data, list[i])
		}
	}
	return x.reply(&allowed)
}

// model serves GET /v1/models/{id}.
func (x *exchange) model() error {
	id, _ := modelID(x.r.URL)
	list, err := x.listModels()
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].ID == id && x.key.AllowsModel(id) {
			return x.reply(&list[i])
		}
	}
	return ModelNotFound(id)
}

func (x *exchange) listModels() ([]Model, error) {
	if err := x.admit(0); err != nil {
		return nil, err
	}
	if err := x.work(); err != nil {
		return nil, err
	}
	list, err := x.h.backend.ListModels(&x.ctx)
	if err != nil {
		return nil, x.backendError(err)
	}
	return list, x.cause()
}
