package clients

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// responseParams returns a request for a response to text.
func responseParams(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "demo-chat", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
}

// respond requests a response, whole or streamed, and checks the events of the
// stream.
func respond(t *testing.T, client openai.Client, stream bool, params responses.ResponseNewParams) *responses.Response {
	t.Helper()
	if !stream {
		r, err := client.Responses.New(testContext(t), params)
		require.NoError(t, err)
		return r
	}
	events := client.Responses.NewStreaming(testContext(t), params)
	defer events.Close()
	var last responses.ResponseStreamEventUnion
	text, arguments := "", ""
	for n := int64(0); events.Next(); n++ {
		last = events.Current()
		assert.Equal(t, n, last.SequenceNumber)
		switch e := last.AsAny().(type) {
		case responses.ResponseCreatedEvent:
			assert.Zero(t, n)
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			arguments += e.Delta
		case nil:
			assert.Fail(t, "unknown event", "%s", last.RawJSON())
		}
	}
	require.NoError(t, events.Err())
	require.Contains(t, []string{"response.completed", "response.incomplete"}, last.Type)
	assert.Equal(t, text, last.Response.OutputText())
	for _, item := range last.Response.Output {
		if item.Type == "function_call" {
			assert.Equal(t, arguments, item.Arguments.OfString)
		}
	}
	return &last.Response
}

// forStreams runs f for whole and streamed responses.
func forStreams(t *testing.T, f func(t *testing.T, stream bool)) {
	t.Helper()
	t.Run("whole", func(t *testing.T) { f(t, false) })
	t.Run("streamed", func(t *testing.T) { f(t, true) })
}

func TestOpenAIResponses(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	forStreams(t, func(t *testing.T, stream bool) {
		r := respond(t, client, stream, responseParams(sampleText))
		assert.Regexp(t, "^resp_", r.ID)
		assert.EqualValues(t, "completed", r.Status)
		assert.Equal(t, sampleText, r.OutputText())
		assert.InDelta(t, time.Now().Unix(), r.CreatedAt, 60)
		assert.Positive(t, r.Usage.InputTokens)
		assert.Equal(t, r.Usage.InputTokens+r.Usage.OutputTokens, r.Usage.TotalTokens)

		params := responseParams("one two three four five")
		params.MaxOutputTokens = openai.Int(2)
		r = respond(t, client, stream, params)
		assert.EqualValues(t, "incomplete", r.Status)
		assert.EqualValues(t, "max_output_tokens", r.IncompleteDetails.Reason)
	})
}

func TestOpenAIResponsesToolLoop(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	tools := []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "forecast", Parameters: forecastSchema, Strict: param.NewOpt(true)}}}
	forStreams(t, func(t *testing.T, stream bool) {
		params := responseParams("How will the weather be?")
		params.Tools = tools
		params.Reasoning = shared.ReasoningParam{Effort: shared.ReasoningEffortLow}
		first := respond(t, client, stream, params)
		require.Len(t, first.Output, 2)
		assert.Equal(t, "reasoning", first.Output[0].Type)
		call := first.Output[1].AsFunctionCall()
		assert.Equal(t, "forecast", call.Name)
		decodeForecast(t, call.Arguments)

		result := responses.ResponseInputItemParamOfFunctionCallOutput("It rains.")
		result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
		t.Run("by previous_response_id", func(t *testing.T) {
			next := responseParams("")
			next.Tools, next.PreviousResponseID = tools, openai.String(first.ID)
			next.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{result}}
			r := respond(t, client, stream, next)
			assert.Contains(t, r.OutputText(), "It rains.")
			assert.Equal(t, first.ID, r.PreviousResponseID)
		})
		t.Run("by history", func(t *testing.T) {
			next := responseParams("")
			next.Tools, next.Store = tools, openai.Bool(false)
			next.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
				responses.ResponseInputItemParamOfMessage("How will the weather be?", responses.EasyInputMessageRoleUser),
				reasoningParam(t, first.Output[0]),
				responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name),
				result,
			}}
			r := respond(t, client, stream, next)
			assert.Contains(t, r.OutputText(), "It rains.")
			assert.Contains(t, r.RawJSON(), `"store":false`)
		})
	})
}

func TestOpenAIResponsesStored(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	forStreams(t, func(t *testing.T, stream bool) {
		created := respond(t, client, stream, responseParams("Remember this"))
		loaded, err := client.Responses.Get(testContext(t), created.ID, responses.ResponseGetParams{})
		require.NoError(t, err)
		assert.JSONEq(t, created.RawJSON(), loaded.RawJSON())
		items, err := client.Responses.InputItems.List(testContext(t), created.ID, responses.InputItemListParams{})
		require.NoError(t, err)
		require.Len(t, items.Data, 1)
		assert.Equal(t, "Remember this", items.Data[0].AsMessage().Content[0].Text)
		require.NoError(t, client.Responses.Delete(testContext(t), created.ID))
		_, err = client.Responses.Get(testContext(t), created.ID, responses.ResponseGetParams{})
		checkStatus(t, err, 404)
	})
}

func TestOpenAIResponsesFormat(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	forStreams(t, func(t *testing.T, stream bool) {
		params := responseParams("Weather")
		params.Text = responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigParamOfJSONSchema("forecast", forecastSchema)}
		decodeForecast(t, respond(t, client, stream, params).OutputText())
	})
}

// A response that only fills the prompt cache is complete and empty. The SDK sends breakpoints in parts.
func TestOpenAIResponsesPrewarm(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	forStreams(t, func(t *testing.T, stream bool) {
		params := responseParams("")
		params.PromptCacheOptions = responses.ResponseNewParamsPromptCacheOptions{Prewarm: openai.Bool(true), Mode: "explicit", Ttl: "30m"}
		params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{{OfInputText: &responses.ResponseInputTextParam{
				Text: sampleText, PromptCacheBreakpoint: responses.NewResponseInputTextPromptCacheBreakpointParam(),
			}}}, responses.EasyInputMessageRoleUser),
		}}
		r := respond(t, client, stream, params)
		assert.EqualValues(t, "completed", r.Status)
		assert.Empty(t, r.Output)
		assert.Positive(t, r.Usage.InputTokens)
		assert.Equal(t, "explicit", r.PromptCacheOptions.Mode)
	})
}

func TestOpenAIResponsesErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	stranger, client := newOpenAIClient(s, option.WithAPIKey("sk-wrong")), newOpenAIClient(s)
	_, err := stranger.Responses.New(testContext(t), responseParams("Hi"))
	checkStatus(t, err, 401)
	params := responseParams("Hi")
	params.PreviousResponseID = openai.String("resp_unknown")
	_, err = client.Responses.New(testContext(t), params)
	e := checkStatus(t, err, 400)
	assert.Equal(t, "previous_response_not_found", e.Code)
	events := client.Responses.NewStreaming(testContext(t), responses.ResponseNewParams{Model: "missing", Input: params.Input})
	assert.False(t, events.Next())
	checkStatus(t, events.Err(), 404)
}

func checkStatus(t *testing.T, err error, status int) *openai.Error {
	t.Helper()
	var e *openai.Error
	require.True(t, errors.As(err, &e), "%v", err)
	assert.Equal(t, status, e.StatusCode)
	return e
}

// A stream that fails ends with the error of the server, and not with one of the connection.
func TestOpenAIResponsesShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	client := newOpenAIClient(s)
	events := client.Responses.NewStreaming(testContext(t), responseParams(longText))
	defer events.Close()
	require.True(t, events.Next())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop(t)
	}()
	last := events.Current()
	for events.Next() {
		last = events.Current()
	}
	assert.ErrorContains(t, events.Err(), "shutting down")
	assert.Contains(t, last.Type, "response.", "the last event before the error")
	<-stopped
}

// A client that stops reading a stream is charged for it.
func TestOpenAIResponsesDisconnect(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "5ms")
	client := newOpenAIClient(s)
	events := client.Responses.NewStreaming(testContext(t), responseParams(longText))
	for events.Next() {
		if events.Current().Type == "response.output_text.delta" {
			break
		}
	}
	require.NoError(t, events.Close())
	s.awaitUsage(t, 1)
}

// reasoningParam returns a reasoning item of a response as an item of the input.
func reasoningParam(t *testing.T, item responses.ResponseOutputItemUnion) responses.ResponseInputItemUnionParam {
	t.Helper()
	p := new(responses.ResponseReasoningItemParam)
	require.NoError(t, json.Unmarshal([]byte(item.RawJSON()), p))
	return responses.ResponseInputItemUnionParam{OfReasoning: p}
}

func TestOpenAIResponsesCompaction(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	params := responseParams("")
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage("Remember this", responses.EasyInputMessageRoleUser),
		{OfCompactionTrigger: &responses.ResponseInputItemCompactionTriggerParam{}},
	}}
	forStreams(t, func(t *testing.T, stream bool) {
		r := respond(t, client, stream, params)
		require.Len(t, r.Output, 1)
		item := r.Output[0].AsCompaction()
		assert.Regexp(t, "^cmp_", item.ID)
		assert.NotEmpty(t, item.EncryptedContent)

		next := responseParams("")
		next.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfCompaction(item.EncryptedContent),
			responses.ResponseInputItemParamOfMessage(sampleText, responses.EasyInputMessageRoleUser),
		}}
		assert.Equal(t, sampleText, respond(t, client, stream, next).OutputText())
	})
	compacted, err := client.Responses.Compact(testContext(t), responses.ResponseCompactParams{
		Model: "demo-chat", Input: responses.ResponseCompactParamsInputUnion{OfString: openai.String("Remember this")},
	})
	require.NoError(t, err)
	require.Len(t, compacted.Output, 2)
	assert.Equal(t, "Remember this", compacted.Output[0].AsMessage().Content[0].Text)
	assert.NotEmpty(t, compacted.Output[1].AsCompaction().EncryptedContent)
	assert.Equal(t, compacted.Usage.InputTokens+compacted.Usage.OutputTokens, compacted.Usage.TotalTokens)
}
