// Members that the Backend gets as the client sent them: those that this package has no field for.

package responses

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// ownMembers are members that are not passed on, because they are between the client and this package, or a
// service that is not there. Servers of chat completions refuse them, and clients do without them.
var ownMembers = map[string]bool{
	"client_metadata": true, // Codex sends it with each request
	"stream_options":  true, // whether events are padded against observers of their lengths; none is
}

// chatMembers and partMembers have the names of the fields of a chat request, and of the members of a part that are
// checked. A member of such a name is another parameter here, or none. It must not be passed on in any case of
// its letters: servers that ignore case would take it for the one that was checked.
var (
	chatMembers = fieldNames(reflect.TypeFor[llm.ChatRequest]())
	partMembers = map[string]bool{"type": true, "text": true, llm.PartImage: true, llm.PartAudio: true, llm.PartFile: true}
)

func fieldNames(t reflect.Type) map[string]bool {
	names := make(map[string]bool)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// passMembers puts the members of the request without a field into the Extra of the chat request, where
// those of a request for chat completions are too. Options.Accept.UnknownMembers has allowed them.
func (r *request) passMembers() {
	for name, value := range r.body.Others {
		if lower := membername.Lower(name); !ownMembers[lower] && !chatMembers[lower] {
			r.chat.Extra[name] = value
		}
	}
}

// passMembers puts the members of an input part without a field, such as prompt_cache_breakpoint, into the
// Extra of the part that it becomes. Those of parts that a model wrote are for clients.
func (p *contentPart) passMembers(part *llm.Part) {
	if len(p.Others) == 0 || !strings.HasPrefix(p.Type, "input_") {
		return
	}
	if part.Extra == nil {
		part.Extra = make(llm.Extra, len(p.Others))
	}
	for name, value := range p.Others {
		if !partMembers[membername.Lower(name)] {
			part.Extra[name] = value
		}
	}
}

// promptCacheOptions has the members of prompt_cache_options that are read. Their values are checked by the server.
type promptCacheOptions struct {
	Mode       *string `json:"mode"`
	TTL        *string `json:"ttl"`
	Comparison *string `json:"comparison_response_id"`
	Prewarm    bool    `json:"prewarm"`
}

// setPromptCacheOptions passes prompt_cache_options on without the members that chat completions do not have:
// prewarm, which asks for no output, and the ID of a response, which only this package knows.
func (r *request) setPromptCacheOptions() error {
	const name = "prompt_cache_options"
	raw := r.body.PromptCacheOptions
	if raw.IsNull() {
		return nil
	}
	r.cacheOptions = new(promptCacheOptions)
	members := make(map[string]jsonwire.Value)
	if err := decode(raw, name, r.cacheOptions); err != nil {
		return err
	}
	if err := decode(raw, name, &members); err != nil {
		return err
	}
	delete(members, "prewarm")
	delete(members, "comparison_response_id")
	if r.prewarms() {
		// Servers of chat completions refuse a limit of zero. This is the least that fills their caches too.
		r.chat.MaxCompletionTokens = new(1)
	}
	if len(members) == 0 {
		return nil
	}
	passed, err := marshal(members)
	r.chat.Extra[name] = passed
	return err
}

// prewarms reports whether the request only fills the prompt cache. The response has no output then. The reply
// to POST /v1/responses/compact always has a summary.
func (r *request) prewarms() bool {
	return r.cacheOptions != nil && r.cacheOptions.Prewarm && !r.standalone
}

// echoedCacheOptions has the options in a response: both of the first members, as clients require.
type echoedCacheOptions struct {
	Mode       string  `json:"mode"`
	TTL        string  `json:"ttl"`
	Comparison *string `json:"comparison_response_id,omitzero"`
}

// echo returns what a response has of the options, or nil if o is nil.
func (o *promptCacheOptions) echo() *echoedCacheOptions {
	if o == nil {
		return nil
	}
	return &echoedCacheOptions{Mode: valueOr(o.Mode, "implicit"), TTL: valueOr(o.TTL, "30m"), Comparison: o.Comparison}
}

// convertModeration converts what a reply of chat completions has of the moderation of its input and output. They
// have a list of results there, and one result here. It returns nil for another form.
func convertModeration(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var m struct {
		Input  json.RawMessage `json:"input"`
		Output json.RawMessage `json:"output"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	for _, part := range []*json.RawMessage{&m.Input, &m.Output} {
		var list struct {
			Type    string            `json:"type"`
			Results []json.RawMessage `json:"results"`
		}
		if len(*part) == 0 || json.Unmarshal(*part, &list) != nil {
			return nil
		}
		if list.Type == "moderation_results" {
			if len(list.Results) == 0 {
				return nil
			}
			*part = list.Results[0]
		}
	}
	converted, err := marshal(&m)
	if err != nil {
		return nil
	}
	return converted
}
