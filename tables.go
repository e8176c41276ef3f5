package llmhttp

import (
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// The JSON of the types of package llm.
var (
	chatRequestJSON      = jsonwire.ObjectOf[llm.ChatRequest]("")
	chatChunkJSON        = jsonwire.ObjectOf[llm.ChatChunk]("")
	chatResponseJSON     = jsonwire.ObjectOf[llm.ChatResponse]("")
	chunkChoiceJSON      = jsonwire.ObjectOf[llm.ChunkChoice]("")
	deltaJSON            = jsonwire.ObjectOf[llm.Delta]("")
	mediaUsageJSON       = jsonwire.ObjectOf[llm.Usage]("media")
	embeddingRequestJSON = jsonwire.ObjectOf[llm.EmbeddingRequest]("")
	imageRequestJSON     = jsonwire.ObjectOf[llm.ImageRequest]("")
	imageResponseJSON    = jsonwire.ObjectOf[llm.ImageResponse]("")
	modelJSON            = jsonwire.ObjectOf[llm.Model]("")
)
