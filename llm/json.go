package llm

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
)

// Extra holds the JSON members of an object that have no field in its Go type. They are kept when
// the object is encoded again, so that new and vendor-specific members pass through without a
// release of this package. A member that has a field is never encoded from Extra.
type Extra map[string]json.RawMessage

var extraJSON = jsonwire.NewObject(jsonwire.Extra(func(e *Extra) *Extra { return e }))

// objectField returns the member "object", which is constant. If a server sends "error"
// there, decoding keeps it in Extra, where wrapErrorMembers finds it.
func objectField[T any](constant string, extra func(*T) *Extra) jsonwire.Field[T] {
	return jsonwire.Constant[T](memberObject, constant).DecodeWith(func(v *T, d *jsonwire.Decoder) {
		if raw := d.View(); raw == `"error"` {
			*extra(v) = jsonwire.MergeExtra(*extra(v), Extra{memberObject: json.RawMessage(raw)})
		}
	})
}

const memberObject = "object"

// wrapErrorMembers moves the members of a reply that is an error to Extra["error"].
func wrapErrorMembers(extra *Extra) {
	if _, ok := (*extra)[memberObject]; !ok {
		return
	}
	delete(*extra, memberObject)
	b, _ := extraJSON.Append(nil, extra) // which is valid, because it was decoded
	*extra = Extra{membername.ObjectError: b}
}

// The tables that other packages of the module use.
func init() {
	jsonwire.Register("", chatRequestJSON)
	jsonwire.Register("", chatChunkJSON)
	jsonwire.Register("", chatResponseJSON)
	jsonwire.Register("", chunkChoiceJSON)
	jsonwire.Register("", deltaJSON)
	jsonwire.Register("", streamOptionsJSON)
	jsonwire.Register("", stringListJSON)
	jsonwire.Register("", partJSON)
	jsonwire.Register("list", partsJSON)
	jsonwire.Register("", usageJSON)
	jsonwire.Register("media", mediaUsageJSON)
	jsonwire.Register("embeddings", embeddingUsageJSON)
	jsonwire.Register("", embeddingRequestJSON)
	jsonwire.Register("", embeddingInputJSON)
	jsonwire.Register("", imageRequestJSON)
	jsonwire.Register("", imageJSON)
	jsonwire.Register("", imageResponseJSON)
	jsonwire.Register("", modelJSON)
}
