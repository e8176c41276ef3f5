package clients

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newAnthropic2Client returns a client of version 2 for s, which uses version
// 2026-10-21 of the API and sends the key as a bearer token. It does not retry.
func newAnthropic2Client(s *server, opts ...option.RequestOption) *anthropic.Client {
	c := anthropic.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.url), option.WithAPIKey(key), option.WithMaxRetries(0),
	}, opts...)...)
	return &c
}

func message2Params(text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "demo-chat", MaxTokens: 10_000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

func message2Text(m *anthropic.Message) string {
	var b strings.Builder
	for _, block := range m.Content {
		b.WriteString(block.Text)
	}
	return b.String()
}

// bothMessages2 returns the reply as a whole, and accumulated from a stream.
func bothMessages2(t *testing.T, c *anthropic.Client, p anthropic.MessageNewParams) []*anthropic.Message {
	t.Helper()
	whole, err := c.Messages.New(testContext(t), p)
	require.NoError(t, err)
	stream := c.Messages.NewStreaming(testContext(t), p)
	streamed := new(anthropic.Message)
	for stream.Next() {
		require.NoError(t, streamed.Accumulate(stream.Current()))
	}
	require.NoError(t, stream.Err())
	assert.Equal(t, whole.StopReason, streamed.StopReason)
	assert.Equal(t, whole.Usage.InputTokens, streamed.Usage.InputTokens)
	assert.Equal(t, whole.Usage.OutputTokens, streamed.Usage.OutputTokens)
	assert.Equal(t, message2Text(whole), message2Text(streamed))
	require.Len(t, streamed.Content, len(whole.Content))
	return []*anthropic.Message{whole, streamed}
}

func TestAnthropic2Text(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newAnthropic2Client(s)
	params := message2Params(sampleText)
	params.System = []anthropic.TextBlockParam{{Text: "Be kind."}}
	for _, m := range bothMessages2(t, client, params) {
		assert.Equal(t, sampleText, message2Text(m))
		assert.Equal(t, anthropic.StopReasonEndTurn, m.StopReason)
	}
	params.StopSequences = []string{"family"}
	for _, m := range bothMessages2(t, client, params) {
		assert.Equal(t, sampleText[:strings.Index(sampleText, "family")], message2Text(m))
		assert.Equal(t, anthropic.StopReasonStopSequence, m.StopReason)
		assert.Equal(t, "family", m.StopSequence)
	}
	assert.EqualValues(t, 4, s.usage(t).Requests)
}

// This version of the API has system messages within a conversation.
func TestAnthropic2Parts(t *testing.T) {
	t.Parallel()
	s := start(t)
	params := message2Params("first")
	params.Messages = append(params.Messages, anthropic.NewAssistantMessage(anthropic.NewTextBlock("first")),
		anthropic.MessageParam{OfSystem: &anthropic.SystemMessageParam{Content: []anthropic.TextBlockParam{{Text: "Be brief."}}}},
		anthropic.NewUserMessage(anthropic.NewTextBlock("second"), anthropic.NewImageBlockBase64("image/gif", "R0lGODlhAQABAAAAACw=")))
	var used usage
	for _, m := range bothMessages2(t, newAnthropic2Client(s), params) {
		assert.Equal(t, "second", message2Text(m))
		used.add(m.Usage.InputTokens, m.Usage.OutputTokens, m.Usage.InputTokens+m.Usage.OutputTokens)
		used.Requests++
	}
	assert.Equal(t, used, s.usage(t))
}

func TestAnthropic2StructuredOutput(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t))
	params := message2Params("The weather?")
	params.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: forecastSchema}
	for _, m := range bothMessages2(t, client, params) {
		decodeForecast(t, message2Text(m))
	}
}

func TestAnthropic2ParallelTools(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t))
	schema := anthropic.ToolInputSchemaParam{Properties: forecastSchema["properties"], Required: []string{"city", "unit", "days"}}
	params := message2Params("How will the weather be?")
	for _, name := range []string{"forecast", "report"} {
		params.Tools = append(params.Tools, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: name, InputSchema: schema}})
	}
	params.ToolChoice = anthropic.ToolChoiceUnionParam{OfAuto: &anthropic.ToolChoiceAutoParam{DisableParallelToolUse: anthropic.Bool(false)}}
	for _, m := range bothMessages2(t, client, params) {
		var results []anthropic.ContentBlockParamUnion
		for _, block := range m.Content {
			call := block.AsAny().(anthropic.ToolUseBlock)
			decodeForecast(t, string(call.Input))
			results = append(results, anthropic.NewToolResultBlock(call.ID, "rain by "+call.Name, false))
		}
		assert.Len(t, results, 2)
		assert.Equal(t, anthropic.StopReasonToolUse, m.StopReason)
		next := params
		next.ToolChoice = anthropic.ToolChoiceUnionParam{}
		next.Messages = append(next.Messages[:1:1], m.ToParam(), anthropic.NewUserMessage(results...))
		answer, err := client.Messages.New(testContext(t), next)
		require.NoError(t, err)
		assert.Equal(t, "The tools say: rain by forecast\nrain by report", message2Text(answer))
	}
}

func TestAnthropic2Retries(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t, "-rpm", "20")) // one request in 3 seconds
	params := message2Params("Hi")
	params.MaxTokens = 10
	var err error
	for err == nil {
		_, err = client.Messages.New(testContext(t), params)
	}
	var e *anthropic.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 429, e.StatusCode)
	_, err = client.Messages.New(testContext(t), params, option.WithMaxRetries(3))
	assert.NoError(t, err)
}

func TestAnthropic2Abort(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	ctx, cancel := context.WithCancel(testContext(t))
	stream := newAnthropic2Client(s).Messages.NewStreaming(ctx, message2Params(longText))
	for range 5 {
		require.True(t, stream.Next())
	}
	cancel()
	for stream.Next() {
	}
	assert.ErrorIs(t, stream.Err(), context.Canceled)
	s.awaitUsage(t, 1)
	s.stop(t)
	assert.NotContains(t, s.out.String(), "requests were interrupted")
}

func TestAnthropic2Thinking(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t))
	params := message2Params(sampleText)
	params.OutputConfig.Effort = anthropic.OutputConfigEffortHigh
	for _, m := range bothMessages2(t, client, params) {
		require.Len(t, m.Content, 2)
		assert.Equal(t, "The user said: "+sampleText, m.Content[0].Thinking)
		next := params
		next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("Go on.")))
		answer, err := client.Messages.New(testContext(t), next)
		require.NoError(t, err)
		assert.Equal(t, "Go on.", message2Text(answer))
	}
}

// The tool runner asks for a message thread, and goes on without one.
func TestAnthropic2ToolRunner(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t))
	schema, err := json.Marshal(forecastSchema)
	require.NoError(t, err)
	for _, stream := range []bool{false, true} {
		var calls []forecast
		tool, err := toolrunner.NewBetaToolFromBytes("forecast", "The weather of the coming days", schema,
			func(_ context.Context, f forecast) (anthropic.BetaToolResultBlockParamContentUnion, error) {
				calls = append(calls, f)
				return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "It rains in " + f.City + "."}}, nil
			})
		require.NoError(t, err)
		params := anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model: "demo-chat", MaxTokens: 1000,
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("The weather?"))},
		}, MaxIterations: 4}
		var last *anthropic.BetaMessage
		if stream {
			runner := client.Beta.Messages.NewToolRunnerStreaming([]anthropic.BetaTool{tool}, params)
			for events, err := range runner.AllStreaming(testContext(t)) {
				require.NoError(t, err)
				for _, err := range events {
					require.NoError(t, err)
				}
			}
			last = runner.LastMessage()
		} else {
			last, err = client.Beta.Messages.NewToolRunner([]anthropic.BetaTool{tool}, params).RunToCompletion(testContext(t))
			require.NoError(t, err)
		}
		require.Len(t, calls, 1)
		require.NotNil(t, last)
		require.Len(t, last.Content, 1)
		assert.Equal(t, "The tools say: It rains in "+calls[0].City+".", last.Content[0].Text)
	}
}

func TestAnthropic2Models(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t))
	page, err := client.Models.List(testContext(t), anthropic.ModelListParams{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(page.Data), 6)
	count, err := client.Messages.CountTokens(testContext(t), anthropic.MessageCountTokensParams{
		Model: "demo-chat", Messages: message2Params("one two three").Messages,
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, count.InputTokens, int64(3))
}

// A request that only fills the prompt cache gets an empty message with usage. The server of the example promises
// no place.
func TestAnthropic2CacheAndPlace(t *testing.T) {
	t.Parallel()
	client := newAnthropic2Client(start(t))
	params := message2Params("Hello")
	params.MaxTokens, params.Speed = 0, anthropic.MessageNewParamsSpeedFast
	m, err := client.Messages.New(testContext(t), params)
	require.NoError(t, err)
	assert.Empty(t, m.Content)
	assert.Equal(t, anthropic.StopReasonMaxTokens, m.StopReason)
	assert.Positive(t, m.Usage.InputTokens)
	assert.NotEmpty(t, m.Usage.JSON.Speed.Raw())
	assert.NotEmpty(t, m.JSON.Diagnostics.Raw())

	params.MaxTokens, params.InferenceGeo = 10, anthropic.String("us")
	_, err = client.Messages.New(testContext(t), params)
	var failure *anthropic.Error
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, 400, failure.StatusCode)
	assert.Contains(t, failure.Error(), "inference_geo")
	params.InferenceGeo = anthropic.String("global")
	_, err = client.Messages.New(testContext(t), params)
	require.NoError(t, err)
}

func TestAnthropic2Errors(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, err := newAnthropic2Client(s, option.WithAPIKey("sk-wrong")).Messages.New(testContext(t), message2Params("Hi"))
	var e *anthropic.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 401, e.StatusCode)
	assert.NotEmpty(t, e.RequestID)
	assert.Contains(t, e.RawJSON(), `"authentication_error"`)
}
