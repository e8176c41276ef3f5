package llmhttp

import "github.com/llmhttp/llmhttp/internal/jsonwire"

// A Model is an entry of the model list.
type Model struct {
	ID      string // what requests name it by; may contain slashes
	Created int64  // Unix time in seconds
	OwnedBy string
	Extra   Extra
}

// MarshalJSON encodes m.
func (m Model) MarshalJSON() ([]byte, error) { return marshal(&m) }

// UnmarshalJSON decodes a model.
func (m *Model) UnmarshalJSON(data []byte) error { return unmarshal(data, m) }

func (m *Model) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("id")
	e.String(m.ID)
	e.Name("object")
	e.String("model")
	e.Name("created")
	e.Int(m.Created)
	e.Name("owned_by")
	e.String(m.OwnedBy)
	e.Extra(m.Extra, "id", "object", "created", "owned_by")
	e.Token('}')
}

func (m *Model) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "id":
			m.ID = d.OptString()
		case "object":
			d.Skip()
		case "created":
			m.Created = decodeTime(d)
		case "owned_by":
			m.OwnedBy = d.OptString()
		default:
			m.Extra.keep(d, o.Name)
		}
	}
}

// models serves GET /v1/models: those the key may use.
func (x *exchange) models() error {
	list, err := x.listModels()
	if err != nil {
		return err
	}
	return x.reply(encoderFunc(func(e *jsonwire.Encoder) {
		e.Literal(`{"object":"list","data":[`)
		for i := range list {
			if x.key.AllowsModel(list[i].ID) {
				e.Element()
				list[i].encode(e)
			}
		}
		e.Literal("]}")
	}))
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
