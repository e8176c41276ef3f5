package llm

import "github.com/llmhttp/llmhttp/internal/jsonwire"

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
