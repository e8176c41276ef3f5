// The names of models in the list of a server.

package client

import (
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
)

// Bounds of a list of models, which takes far more memory than its JSON.
const (
	MaxModels     = 10_000
	MaxModelReply = 8 << 20 // in bytes
)

// RenameModels returns the models of the server with the names that clients use.
// A model with several names is listed with each, and shares no memory with the others.
func (c *Client) RenameModels(list []llm.Model) []llm.Model {
	clientNames := slices.Sorted(maps.Keys(c.Models))
	byServerName := make(map[string][]string) // the client names of a model
	var hidden []string                       // server names that clients do not see
	for _, client := range clientNames {
		server := c.Models[client]
		byServerName[server] = append(byServerName[server], client)
		if c.Models[server] != server {
			hidden = append(hidden, server)
		}
	}
	listed := make(map[string]bool)
	var out []llm.Model
	add := func(m llm.Model, name string) {
		if name == "" || listed[name] {
			return
		}
		listed[name] = true
		m.DisplayName = modelname.RenameTitle(m.DisplayName, m.ID, name, hidden...)
		m.Capabilities = slices.Clone(m.Capabilities)
		m.Extra = modelname.RenameMembers(m.Extra, m.ID, name, hidden...)
		m.ID = name
		out = append(out, m)
	}
	for _, m := range list {
		for _, name := range byServerName[m.ID] {
			add(m, name)
		}
		_, taken := c.Models[m.ID] // it is the client name of another model
		if byServerName[m.ID] == nil && !taken {
			add(m, m.ID)
		}
	}
	for _, name := range clientNames {
		add(llm.Model{}, name)
	}
	return out
}
