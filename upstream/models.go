package upstream

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp"
)

// ListModels implements [llmhttp.ModelLister]. The models are those of the
// server's list, by the names that clients call them, and then those of
// Options.Models that the server does not list.
func (b *Backend) ListModels(ctx context.Context) ([]llmhttp.Model, error) {
	var list []llmhttp.Model
	err := b.fetch(ctx, b.models, nil, modelName{}, func(_ *call, reply []byte) (err error) {
		list, err = decodeModels(reply)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.rename(list), nil
}

// decodeModels decodes a list of models, which some servers send without the
// object around it.
func decodeModels(reply []byte) ([]llmhttp.Model, error) {
	var list []llmhttp.Model
	if err := json.Unmarshal(reply, &list); err == nil {
		return list, nil
	}
	var object struct{ Data []llmhttp.Model }
	err := json.Unmarshal(reply, &object)
	return object.Data, err
}

// rename returns the models by the names that clients call them.
func (b *Backend) rename(list []llmhttp.Model) []llmhttp.Model {
	ours := make(map[string][]string) // by their name
	for _, name := range slices.Sorted(maps.Keys(b.opts.Models)) {
		theirs := b.opts.Models[name]
		ours[theirs] = append(ours[theirs], name)
	}
	listed := make(map[string]bool)
	out := make([]llmhttp.Model, 0, len(list)+len(b.opts.Models))
	add := func(m llmhttp.Model, name string) {
		if name != "" && !listed[name] {
			listed[name] = true
			m.ID, m.Extra = name, maps.Clone(m.Extra)
			out = append(out, m)
		}
	}
	for _, m := range list {
		if names := ours[m.ID]; names != nil {
			for _, name := range names {
				add(m, name)
			}
		} else if _, taken := b.opts.Models[m.ID]; !taken {
			add(m, m.ID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.opts.Models)) {
		add(llmhttp.Model{}, name)
	}
	return out
}
