// The list of models.

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/payload"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// ListModels implements [github.com/llmhttp/llmhttp.ModelLister]. It returns the models that the server lists, with
// the names that clients use, and then those of Options.Models that the server does not list.
// Windows, limits and capabilities are those that vLLM, llama.cpp, OpenRouter, LiteLLM and this
// package's Handler list. A model with another name than the server's has no DisplayName unless its
// ID contains the server's.
func (b *Backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	list, err := client.Fetch(ctx, b.client, b.models, payload.Payload{}, modelname.Names{}, decodeModels)
	if err != nil {
		return nil, err
	}
	return b.client.RenameModels(list), nil
}

// modelLists are the members that have the list, by what servers call them: OpenAI and most others; Gemini, Cohere and
// Ollama's own API.
var modelLists = []string{"data", "models"}

// decodeModels decodes the reply r to a request for the models.
func decodeModels(r *reply.Reply, body []byte) ([]llm.Model, error) {
	var entries []json.RawMessage
	if json.Unmarshal(body, &entries) != nil { // some servers send the array without the object around it
		var object map[string]json.RawMessage
		if err := r.Decode(body, &object); err != nil {
			return nil, err
		}
		name := slices.IndexFunc(modelLists, func(name string) bool { return object[name] != nil })
		if name >= 0 {
			if err := json.Unmarshal(object[modelLists[name]], &entries); err != nil {
				return nil, r.Unreadable(body, err)
			}
		}
		if err := r.Reported(body, object["error"], entries != nil); err != nil {
			return nil, err
		}
		if name < 0 {
			return nil, r.Invalid("the reply has no list of models")
		}
	}
	if len(entries) > client.MaxModels {
		return nil, r.Invalid("the reply has too many models")
	}
	list, err := decodeModelEntries(entries)
	if err != nil {
		return nil, r.Unreadable(body, err)
	}
	return list, nil
}

// decodeModelEntries decodes a list of models. It leaves out entries that cannot be
// decoded or have no ID. It fails if no entry is left.
func decodeModelEntries(entries []json.RawMessage) (list []llm.Model, err error) {
	for _, entry := range entries {
		var m llm.Model
		if m, err = decodeModelEntry(entry); err == nil {
			list = append(list, m)
		}
	}
	if list != nil {
		return list, nil
	}
	return nil, err
}

// decodeModelEntry decodes an entry of a list of models. The ID may have another name: Ollama's own API calls it
// "model", and Gemini and Cohere "name".
func decodeModelEntry(entry json.RawMessage) (m llm.Model, err error) {
	if err := m.UnmarshalJSON(entry); err != nil {
		return m, err
	}
	if m.ID == "" {
		_ = json.Unmarshal(m.Extra["model"], &m.ID)
	}
	if m.ID == "" {
		m.ID = strings.TrimPrefix(m.DisplayName, "models/") // Gemini's
		m.DisplayName = ""
	}
	if m.ID == "" {
		return m, errors.New("a model has no ID")
	}
	return m, nil
}
