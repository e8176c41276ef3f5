package llmfake

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake"
)

// newOpenAI returns a client of openai-go for srv. It needs no base URL.
func newOpenAI(srv *llmfake.Server) *openai.Client {
	c := openai.NewClient(option.WithHTTPClient(srv.Client()), option.WithAPIKey("test"))
	return &c
}

// newAnthropic returns a client of anthropic-sdk-go for srv.
func newAnthropic(srv *llmfake.Server) *anthropic.Client {
	c := anthropic.NewClient(anthropicoption.WithHTTPClient(srv.Client()), anthropicoption.WithAPIKey("test"))
	return &c
}

func chatParams(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

func messageParams(model, text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(model), MaxTokens: 1000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

// forecast is what a model is asked for.
type forecast struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

var bergen = forecast{City: "Bergen", Days: 2}

// inBubble runs a test with a Server in a bubble, so that retries take no time.
func inBubble(t *testing.T, name string, f func(t *testing.T, srv *llmfake.Server)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { f(t, llmfake.NewServer(t)) })
	})
}

func TestOpenAI(t *testing.T) {
	t.Parallel()
	inBubble(t, "text", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Text("It rains.").Usage(3, 4))
		c, err := newOpenAI(srv).Chat.Completions.New(t.Context(), chatParams("gpt-4o", "Rain?"))
		require.NoError(t, err)
		assert.Equal(t, "It rains.", c.Choices[0].Message.Content)
		assert.EqualValues(t, 7, c.Usage.TotalTokens)
		srv.Request(0).WantModel("gpt-4o").WantUserText("Rain?").WantHeader("Authorization", "Bearer test")
	})
	inBubble(t, "stream", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Words("It rains in Bergen.", time.Minute))
		began := time.Now()
		stream := newOpenAI(srv).Chat.Completions.NewStreaming(t.Context(), chatParams("gpt-4o", "Rain?"))
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			require.True(t, acc.AddChunk(stream.Current()))
		}
		require.NoError(t, stream.Err())
		assert.Equal(t, "It rains in Bergen.", acc.Choices[0].Message.Content)
		assert.Equal(t, 4*time.Minute, time.Since(began))
	})
	inBubble(t, "a loop of tools", func(t *testing.T, srv *llmfake.Server) {
		srv.When(llmfake.Turn(1)).Reply(llmfake.Text("I look.").Call("forecast", bergen).Call("forecast", forecast{City: "Oslo"}))
		srv.When(llmfake.HasToolResult("forecast", "rain in Oslo")).Reply(llmfake.Text("Rain."))
		client := newOpenAI(srv)
		p := chatParams("gpt-4o", "Rain?")
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "forecast"})}
		c, err := client.Chat.Completions.New(t.Context(), p)
		require.NoError(t, err)
		require.Len(t, c.Choices[0].Message.ToolCalls, 2)
		p.Messages = append(p.Messages, c.Choices[0].Message.ToParam())
		for _, call := range c.Choices[0].Message.ToolCalls {
			var got forecast
			require.NoError(t, json.Unmarshal([]byte(call.Function.Arguments), &got))
			p.Messages = append(p.Messages, openai.ToolMessage("rain in "+got.City, call.ID))
		}
		c, err = client.Chat.Completions.New(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, "Rain.", c.Choices[0].Message.Content)
		srv.Request(1).WantToolResult("forecast", "rain in Bergen").WantTools("forecast").WantMessages("user: Rain?",
			`assistant: I look. call forecast({"city":"Bergen","days":2}) call forecast({"city":"Oslo","days":0})`, "tool: rain in Bergen", "tool: rain in Oslo")
	})
	inBubble(t, "structured output", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.JSON(bergen))
		c, err := newOpenAI(srv).Chat.Completions.New(t.Context(), chatParams("gpt-4o", "Rain?"))
		require.NoError(t, err)
		var got forecast
		require.NoError(t, json.Unmarshal([]byte(c.Choices[0].Message.Content), &got))
		assert.Equal(t, bergen, got)
	})
	inBubble(t, "refusal, choices, reasons", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Choices(llmfake.Refuse("No."), llmfake.Text("Yes").Finish("length")))
		p := chatParams("gpt-4o", "Rain?")
		p.N = openai.Int(2)
		c, err := newOpenAI(srv).Chat.Completions.New(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, "No.", c.Choices[0].Message.Refusal)
		assert.Equal(t, "length", c.Choices[1].FinishReason)
	})
	inBubble(t, "annotations", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Text("See there.").Cite("https://example.com", "Example", 4, 9))
		c, err := newOpenAI(srv).Chat.Completions.New(t.Context(), chatParams("gpt-4o", "Where?"))
		require.NoError(t, err)
		assert.Equal(t, "https://example.com", c.Choices[0].Message.Annotations[0].URLCitation.URL)
	})
	inBubble(t, "a retry waits as long as it is asked", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.RateLimited(30*time.Second), llmfake.Overloaded(), llmfake.Text("It rains."))
		began := time.Now()
		c, err := newOpenAI(srv).Chat.Completions.New(t.Context(), chatParams("gpt-4o", "Rain?"))
		require.NoError(t, err)
		assert.Equal(t, "It rains.", c.Choices[0].Message.Content)
		assert.GreaterOrEqual(t, time.Since(began), 30*time.Second)
		srv.WantRequests(3)
	})
	inBubble(t, "embeddings", func(t *testing.T, srv *llmfake.Server) {
		srv.When(llmfake.Embeddings()).Reply(llmfake.Vectors([]float32{1, 0}, []float32{0, 1}))
		r, err := newOpenAI(srv).Embeddings.New(t.Context(), openai.EmbeddingNewParams{
			Model: "text-embedding-3-small", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}},
		})
		require.NoError(t, err)
		assert.Equal(t, []float64{0, 1}, r.Data[1].Embedding)
	})
}

func TestOpenAI_Responses(t *testing.T) {
	t.Parallel()
	input := func(text string) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: "gpt-4o", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
	}
	inBubble(t, "text", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Reason("Hm.").Text("It rains."))
		r, err := newOpenAI(srv).Responses.New(t.Context(), input("Rain?"))
		require.NoError(t, err)
		assert.Equal(t, "It rains.", r.OutputText())
		srv.Request(0).WantProtocol(llmfake.Responses)
	})
	inBubble(t, "stream", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Text("It rains."))
		stream := newOpenAI(srv).Responses.NewStreaming(t.Context(), input("Rain?"))
		var text string
		for stream.Next() {
			if e := stream.Current(); e.Type == "response.completed" {
				text = e.AsResponseCompleted().Response.OutputText()
			}
		}
		require.NoError(t, stream.Err())
		assert.Equal(t, "It rains.", text)
	})
	inBubble(t, "annotations", func(t *testing.T, srv *llmfake.Server) {
		srv.Always(llmfake.Text("See there.").Cite("https://example.com", "Example", 4, 9))
		client := newOpenAI(srv)
		r, err := client.Responses.New(t.Context(), input("Where?"))
		require.NoError(t, err)
		whole := r.Output[0].AsMessage().Content[0].AsOutputText().Annotations[0].AsURLCitation()
		assert.Equal(t, "https://example.com", whole.URL)
		assert.EqualValues(t, 4, whole.StartIndex)
		stream := client.Responses.NewStreaming(t.Context(), input("Where?"))
		var events []responses.ResponseOutputTextAnnotationAddedEvent
		for stream.Next() {
			if e, ok := stream.Current().AsAny().(responses.ResponseOutputTextAnnotationAddedEvent); ok {
				events = append(events, e)
			}
		}
		require.NoError(t, stream.Err())
		require.Len(t, events, 1)
		// The text with its annotations goes back to the server.
		p := input("")
		p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage("Where?", "user"), {OfOutputMessage: new(r.Output[0].AsMessage().ToParam())},
			responses.ResponseInputItemParamOfMessage("Thanks", "user"),
		}}
		_, err = client.Responses.New(t.Context(), p)
		require.NoError(t, err)
		srv.Request(-1).WantMessages("user: Where?", "assistant: See there.", "user: Thanks")
	})
	inBubble(t, "a conversation on the server", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Call("forecast", bergen), llmfake.Text("Rain."))
		client := newOpenAI(srv)
		p := input("Rain?")
		p.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "forecast", Parameters: map[string]any{"type": "object"}}}}
		r, err := client.Responses.New(t.Context(), p)
		require.NoError(t, err)
		call := r.Output[0].AsFunctionCall()
		result := responses.ResponseInputItemParamOfFunctionCallOutput("rain in Bergen")
		result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
		p.PreviousResponseID = openai.String(r.ID)
		p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{result}}
		r, err = client.Responses.New(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, "Rain.", r.OutputText())
		srv.Request(1).WantMessages("user: Rain?", `assistant: call forecast({"city":"Bergen","days":2})`, "tool: rain in Bergen")
	})
}

func TestAnthropic(t *testing.T) {
	t.Parallel()
	inBubble(t, "text", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Reason("Hm.").Text("It rains.").Usage(3, 4))
		m, err := newAnthropic(srv).Messages.New(t.Context(), messageParams("claude-sonnet-4-5", "Rain?"))
		require.NoError(t, err)
		assert.Equal(t, "Hm.", m.Content[0].Thinking)
		assert.Equal(t, "It rains.", m.Content[1].Text)
		assert.EqualValues(t, 4, m.Usage.OutputTokens)
		srv.Request(0).WantModel("claude-sonnet-4-5").WantUserText("Rain?").WantProtocol(llmfake.Messages)
	})
	inBubble(t, "stream", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Words("It rains in Bergen.", time.Minute))
		began := time.Now()
		stream := newAnthropic(srv).Messages.NewStreaming(t.Context(), messageParams("claude-sonnet-4-5", "Rain?"))
		var m anthropic.Message
		for stream.Next() {
			require.NoError(t, m.Accumulate(stream.Current()))
		}
		require.NoError(t, stream.Err())
		assert.Equal(t, "It rains in Bergen.", m.Content[0].Text)
		assert.Equal(t, 4*time.Minute, time.Since(began))
	})
	inBubble(t, "a loop of tools", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Text("I look.").Call("forecast", bergen), llmfake.Text("Rain."))
		client := newAnthropic(srv)
		p := messageParams("claude-sonnet-4-5", "Rain?")
		p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "forecast", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}}}}
		m, err := client.Messages.New(t.Context(), p)
		require.NoError(t, err)
		call := m.Content[1].AsAny().(anthropic.ToolUseBlock)
		p.Messages = append(p.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "rain", false)))
		m, err = client.Messages.New(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, "Rain.", m.Content[0].Text)
		srv.Request(1).WantToolResult("forecast", "rain")
	})
	inBubble(t, "citations", func(t *testing.T, srv *llmfake.Server) {
		srv.Always(llmfake.Text("See there.").Cite("https://example.com", "Example", 4, 9).Text(" Or not."))
		client := newAnthropic(srv)
		p := messageParams("claude-sonnet-4-5", "Where?")
		whole, err := client.Messages.New(t.Context(), p)
		require.NoError(t, err)
		stream := client.Messages.NewStreaming(t.Context(), p)
		var streamed anthropic.Message
		for stream.Next() {
			require.NoError(t, streamed.Accumulate(stream.Current()))
		}
		require.NoError(t, stream.Err())
		for _, m := range []*anthropic.Message{whole, &streamed} {
			assert.Equal(t, "https://example.com", m.Content[0].Citations[0].AsWebSearchResultLocation().URL)
			assert.Equal(t, " Or not.", m.Content[1].Text)
			assert.Empty(t, m.Content[1].Citations)
		}
		p.Messages = append(p.Messages, whole.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("Thanks")))
		_, err = client.Messages.New(t.Context(), p)
		require.NoError(t, err)
		srv.Request(-1).WantUserText("Thanks")
	})
	inBubble(t, "structured output", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.JSON(bergen))
		m, err := newAnthropic(srv).Messages.New(t.Context(), messageParams("claude-sonnet-4-5", "Rain?"))
		require.NoError(t, err)
		var got forecast
		require.NoError(t, json.Unmarshal([]byte(m.Content[0].Text), &got))
		assert.Equal(t, bergen, got)
	})
	inBubble(t, "a retry", func(t *testing.T, srv *llmfake.Server) {
		srv.Reply(llmfake.Overloaded(), llmfake.Text("It rains."))
		m, err := newAnthropic(srv).Messages.New(t.Context(), messageParams("claude-sonnet-4-5", "Rain?"))
		require.NoError(t, err)
		assert.Equal(t, "It rains.", m.Content[0].Text)
		assert.Equal(t, 529, srv.Request(0).Status)
	})
}

// A program that reads the environment needs nothing else.
func TestEnvironment(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Setenv()
	srv.Reply(llmfake.Text("one"), llmfake.Text("two"))
	client := openai.NewClient()
	c, err := client.Chat.Completions.New(t.Context(), chatParams("gpt-4o", "Hi"))
	require.NoError(t, err)
	assert.Equal(t, "one", c.Choices[0].Message.Content)
	claude := anthropic.NewClient()
	m, err := claude.Messages.New(t.Context(), messageParams("claude-sonnet-4-5", "Hi"))
	require.NoError(t, err)
	assert.Equal(t, "two", m.Content[0].Text)
}
