package membername

// The values of the member "object".
const (
	ObjectChunk      = "chat.completion.chunk"
	ObjectCompletion = "chat.completion"
	ObjectModel      = "model"
	ObjectList       = "list"
	ObjectError      = "error"
)

const Logprobs = "logprobs"

// ReasoningAlias is the other name of the member "reasoning_content".
const ReasoningAlias = "reasoning"
