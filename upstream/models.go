package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/pattern"
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
// object around it. What cannot be read is left out, if anything can.
func decodeModels(reply []byte) ([]llmhttp.Model, error) {
	var entries []json.RawMessage
	if json.Unmarshal(reply, &entries) != nil {
		var object struct{ Data []json.RawMessage }
		if err := json.Unmarshal(reply, &object); err != nil {
			return nil, err
		}
		entries = object.Data
	}
	var list []llmhttp.Model
	var fault error
	for _, entry := range entries {
		m, err := decodeModel(entry)
		if err != nil {
			fault = cmp.Or(fault, err)
			continue
		}
		list = append(list, m)
	}
	if list == nil {
		return nil, fault
	}
	return list, nil
}

// decodeModel decodes a model, without the members that are of an odd type. It
// fails if there are some, and no ID.
func decodeModel(entry []byte) (m llmhttp.Model, err error) {
	if err = json.Unmarshal(entry, &m); err == nil {
		return m, nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(entry, &members) != nil {
		return m, err
	}
	for name, value := range members {
		var one llmhttp.Model
		if member, _ := json.Marshal(map[string]json.RawMessage{name: value}); json.Unmarshal(member, &one) != nil {
			delete(members, name)
		}
	}
	mended, _ := json.Marshal(members)
	m = llmhttp.Model{}
	if json.Unmarshal(mended, &m) == nil && m.ID != "" {
		return m, nil
	}
	return m, err
}

// rename returns the models by the names that clients call them.
func (b *Backend) rename(list []llmhttp.Model) []llmhttp.Model {
	ours := make(map[string][]string) // by their name
	var hidden []string
	for _, name := range slices.Sorted(maps.Keys(b.opts.Models)) {
		theirs := b.opts.Models[name]
		ours[theirs] = append(ours[theirs], name)
		if b.opts.Models[theirs] != theirs {
			hidden = append(hidden, theirs)
		}
	}
	listed := make(map[string]bool)
	out := make([]llmhttp.Model, 0, len(list)+len(b.opts.Models))
	add := func(m llmhttp.Model, name string) {
		if name != "" && !listed[name] {
			listed[name] = true
			m.Extra = pattern.RenameMembers(m.Extra, m.ID, name, hidden...)
			m.ID = name
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
