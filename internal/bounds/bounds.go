// Package bounds has the numbers of elements that requests and replies may have, and the sizes of some.
package bounds

// Bounds on the elements of a request of any protocol. Options.Bounds.MaxBody bounds its bytes;
// these keep a small body from becoming much memory.
const (
	Messages  = 16384
	Parts     = 4096 // of a message
	Tools     = 2048
	ToolCalls = 1024 // of a message in a request, and of a choice in a reply
	Choices   = 128
	Stops     = 4
	FormParts = 64 // fields and files of a form, and elements of a list in it
)

const (
	EmbeddingInputs = 2048
	EmbeddingTokens = 1 << 20 // token numbers of all inputs
)

// DeltaText is how many bytes of text one event may have, and so one delta of any stream. Escaped, the
// text is at most six times as long, and old releases of openai-go read lines of at most 64 KiB.
const DeltaText = 8 << 10

// ImageQualities are the values of ImageRequest.Quality.
var ImageQualities = []string{"standard", "hd", "low", "medium", "high", "xhigh", "max", "auto"}

const SizeForm = "a width and a height in pixels, such as '1024x1024'"
