// The list of models.

package anthropic

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// A modelPage is a page of the list.
type modelPage struct {
	Data    []modelEntry    `json:"data"`
	HasMore bool            `json:"has_more"`
	LastID  string          `json:"last_id"`
	Error   json.RawMessage `json:"error"`
}

type modelEntry struct {
	ID             string          `json:"id"`
	DisplayName    string          `json:"display_name"`
	CreatedAt      json.RawMessage `json:"created_at"` // RFC 3339
	Created        json.RawMessage `json:"created"`    // Unix time, of servers that also have OpenAI's API
	MaxInputTokens json.RawMessage `json:"max_input_tokens"`
	MaxTokens      json.RawMessage `json:"max_tokens"`
	Capabilities   json.RawMessage `json:"capabilities"`
}

type modelCapability struct {
	Supported bool `json:"supported"`
}

// model returns the entry as a model.
func (e *modelEntry) model() llm.Model {
	m := llm.Model{ID: e.ID, DisplayName: e.DisplayName, ContextWindow: numberOf(e.MaxInputTokens), OutputLimit: numberOf(e.MaxTokens)}
	var created time.Time
	if json.Unmarshal(e.CreatedAt, &created) == nil && created.Unix() > 0 {
		m.Created = created.Unix()
	} else {
		m.Created = int64(numberOf(e.Created))
	}
	var supports *struct {
		Images   modelCapability `json:"image_input"`
		Thinking modelCapability `json:"thinking"`
	}
	if json.Unmarshal(e.Capabilities, &supports) == nil && supports != nil {
		m.Capabilities = []llm.Capability{llm.CapabilityTools}
		if supports.Images.Supported {
			m.Capabilities = append(m.Capabilities, llm.CapabilityVision)
		}
		if supports.Thinking.Supported {
			m.Capabilities = append(m.Capabilities, llm.CapabilityThinking)
		}
	}
	return m
}

// ListModels implements [github.com/llmhttp/llmhttp.ModelLister]. It returns the models that the server lists, with the names that
// clients use, and then those of Options.Server.Models that the server does not list. Names for people and windows are those of
// the server. All models of a server that lists capabilities have tools.
func (b *Backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	var list []llm.Model
	entries := 0 // also those without an ID, so that no list is endless
	for after := ""; ; {
		page, err := client.Fetch(ctx, b.client, b.modelPage(after), payload.Payload{}, modelname.Names{}, decodeModels)
		if err != nil {
			return nil, err
		}
		entries += len(page.Data)
		for i := range page.Data {
			if e := &page.Data[i]; e.ID != "" {
				list = append(list, e.model())
			}
		}
		if !page.HasMore || page.LastID == "" || page.LastID == after || len(page.Data) == 0 || entries >= client.MaxModels {
			break
		}
		after = page.LastID
	}
	return b.client.RenameModels(list), nil
}

// modelPage returns the endpoint of the page after a model.
func (b *Backend) modelPage(after string) client.Endpoint {
	e := b.models
	u, err := url.Parse(e.URL)
	if err != nil {
		return e // New has parsed it
	}
	query := u.Query()
	query.Set("limit", "1000")
	if after != "" {
		query.Set("after_id", after)
	}
	u.RawQuery = query.Encode()
	e.URL = u.String()
	return e
}

// decodeModels decodes the reply r to a request for a page.
func decodeModels(r *reply.Reply, body []byte) (page modelPage, err error) {
	malformed := json.Unmarshal(body, &page)
	if err := r.Reported(body, page.Error, page.Data != nil); err != nil {
		return page, err
	}
	switch {
	case malformed != nil:
		return page, r.Unreadable(body, malformed)
	case page.Data == nil:
		return page, r.Invalid("the reply has no list of models")
	case len(page.Data) > client.MaxModels:
		return page, r.Invalid("the reply has too many models")
	}
	return page, nil
}
