package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/llmhttp/llmhttp/llm"
)

// A Tool is a function that the model can call and that runs on the server.
type Tool struct {
	llm.Function // the name must not be empty

	// Run carries out a call and returns its result: see [Result] and [Failure]. arguments is JSON
	// as the model wrote it, which may be invalid. An error ends the request; the client is told
	// no more than that unless it is an [*llm.Error], and its text is logged. Run may be called
	// concurrently, also for one request, and must return soon after ctx is done.
	Run func(ctx context.Context, arguments string) (llm.Message, error)
}

// NewTool returns a Tool whose arguments are decoded into a value of type In, which is usually a
// struct that has the members of f.Parameters. If that fails, the model is told, and can try again.
// Empty arguments are those of an empty object. run is as Tool.Run, and must not be nil.
func NewTool[In any](f llm.Function, run func(ctx context.Context, in In) (llm.Message, error)) Tool {
	return Tool{f, func(ctx context.Context, arguments string) (llm.Message, error) {
		var in In
		if arguments == "" {
			arguments = "{}"
		}
		if err := json.Unmarshal([]byte(arguments), &in); err != nil {
			return Failure(fmt.Sprint("The arguments are not those of this tool: ", err)), nil
		}
		return run(ctx, in)
	}}
}

// Result returns the result of a call for the model.
func Result(text string) llm.Message { return llm.Message{Content: llm.TextContent(text)} }

// Failure returns a result that tells the model that the call has failed, and why.
func Failure(text string) llm.Message {
	return llm.Message{Content: llm.TextContent(text), IsError: true}
}
