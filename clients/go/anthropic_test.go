package clients

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newAnthropicClient returns a client of github.com/anthropics/anthropic-sdk-go for s,
// which uses version 2023-06-01 of the API. It does not retry unless opts say so.
func newAnthropicClient(s *server, opts ...option.RequestOption) *anthropic.Client {
	c := anthropic.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.url), option.WithAPIKey(key), option.WithMaxRetries(0),
	}, opts...)...)
	return &c
}

// messageParams returns a request with text as the user's message.
func messageParams(text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "demo-chat", MaxTokens: 10_000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

// streamMessage accumulates a stream.
func streamMessage(t *testing.T, c *anthropic.Client, p anthropic.MessageNewParams) *anthropic.Message {
	t.Helper()
	stream := c.Messages.NewStreaming(testContext(t), p)
	m := new(anthropic.Message)
	for stream.Next() {
		require.NoError(t, m.Accumulate(stream.Current()))
	}
	require.NoError(t, stream.Err())
	return m
}

// bothMessages returns the reply as a whole, and accumulated from a stream.
func bothMessages(t *testing.T, c *anthropic.Client, p anthropic.MessageNewParams) map[string]*anthropic.Message {
	t.Helper()
	whole, err := c.Messages.New(testContext(t), p)
	require.NoError(t, err)
	streamed := streamMessage(t, c, p)
	assert.Equal(t, whole.StopReason, streamed.StopReason)
	assert.Equal(t, whole.StopSequence, streamed.StopSequence)
	assert.Equal(t, whole.Usage.InputTokens, streamed.Usage.InputTokens)
	assert.Equal(t, whole.Usage.OutputTokens, streamed.Usage.OutputTokens)
	require.Len(t, streamed.Content, len(whole.Content))
	for i, block := range whole.Content {
		assert.Equal(t, block.Type, streamed.Content[i].Type)
		assert.Equal(t, block.Text, streamed.Content[i].Text)
		assert.Equal(t, block.Thinking, streamed.Content[i].Thinking)
		assert.Equal(t, block.Signature, streamed.Content[i].Signature)
	}
	return map[string]*anthropic.Message{"whole": whole, "streamed": streamed}
}

// messageText returns the text of a message.
func messageText(m *anthropic.Message) string {
	var b strings.Builder
	for _, block := range m.Content {
		b.WriteString(block.Text)
	}
	return b.String()
}

func TestAnthropicText(t *testing.T) {
	t.Parallel()
	client := newAnthropicClient(start(t))
	for name, test := range map[string]struct {
		change func(*anthropic.MessageNewParams)
		want   string
		reason anthropic.StopReason
	}{
		"echo": {func(*anthropic.MessageNewParams) {}, sampleText, anthropic.StopReasonEndTurn},
		"system and conversation": {func(p *anthropic.MessageNewParams) {
			p.System = []anthropic.TextBlockParam{{Text: "Be kind.", CacheControl: anthropic.NewCacheControlEphemeralParam()}}
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(anthropic.NewTextBlock("first")),
				anthropic.NewUserMessage(anthropic.NewTextBlock("second"), anthropic.NewImageBlockBase64("image/gif", "R0lGODlhAQABAAAAACw=")))
		}, "second", anthropic.StopReasonEndTurn},
		"stop sequence": {func(p *anthropic.MessageNewParams) { p.StopSequences = []string{"family"} },
			sampleText[:strings.Index(sampleText, "family")], anthropic.StopReasonStopSequence},
		"max_tokens": {func(p *anthropic.MessageNewParams) { p.MaxTokens = 2 }, `The "`, anthropic.StopReasonMaxTokens},
	} {
		t.Run(name, func(t *testing.T) {
			params := messageParams(sampleText)
			test.change(&params)
			for _, m := range bothMessages(t, client, params) {
				if test.reason == anthropic.StopReasonMaxTokens {
					assert.True(t, strings.HasPrefix(messageText(m), test.want), messageText(m))
				} else {
					assert.Equal(t, test.want, messageText(m))
				}
				assert.Equal(t, test.reason, m.StopReason)
				assert.Regexp(t, "^msg_", m.ID)
				assert.EqualValues(t, "demo-chat", m.Model)
				assert.Positive(t, m.Usage.OutputTokens)
			}
		})
	}
}

func TestAnthropicTools(t *testing.T) {
	t.Parallel()
	client := newAnthropicClient(start(t))
	schema := anthropic.ToolInputSchemaParam{
		Properties: forecastSchema["properties"], Required: []string{"city", "unit", "days"},
	}
	var tools []anthropic.ToolUnionParam
	for _, name := range []string{"forecast", "report"} {
		tools = append(tools, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: name, InputSchema: schema}})
	}
	for name, test := range map[string]struct {
		choice anthropic.ToolChoiceUnionParam
		want   []string
	}{
		"absent":   {anthropic.ToolChoiceUnionParam{}, []string{"forecast"}},
		"any":      {anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}}, []string{"forecast"}},
		"named":    {anthropic.ToolChoiceParamOfTool("report"), []string{"report"}},
		"parallel": {anthropic.ToolChoiceUnionParam{OfAuto: &anthropic.ToolChoiceAutoParam{DisableParallelToolUse: anthropic.Bool(false)}}, []string{"forecast", "report"}},
		"none":     {anthropic.ToolChoiceUnionParam{OfNone: &anthropic.ToolChoiceNoneParam{}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			params := messageParams("How will the weather be?")
			params.Tools, params.ToolChoice = tools, test.choice
			for mode, m := range bothMessages(t, client, params) {
				var names []string
				var results []anthropic.ContentBlockParamUnion
				for _, block := range m.Content {
					if call, ok := block.AsAny().(anthropic.ToolUseBlock); ok {
						names = append(names, call.Name)
						decodeForecast(t, string(call.Input))
						results = append(results, anthropic.NewToolResultBlock(call.ID, "rain by "+call.Name, false))
					}
				}
				assert.Equal(t, test.want, names, mode)
				if test.want == nil {
					assert.Equal(t, anthropic.StopReasonEndTurn, m.StopReason)
					continue
				}
				assert.Equal(t, anthropic.StopReasonToolUse, m.StopReason)
				next := messageParams("How will the weather be?")
				next.Tools = tools
				next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(results...))
				answer, err := client.Messages.New(testContext(t), next)
				require.NoError(t, err)
				assert.Equal(t, "The tools say: rain by "+strings.Join(test.want, "\nrain by "), messageText(answer))
			}
		})
	}
}

func TestAnthropicStructuredOutput(t *testing.T) {
	t.Parallel()
	client := newAnthropicClient(start(t))
	params := messageParams("The weather?")
	params.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: forecastSchema}
	for _, m := range bothMessages(t, client, params) {
		decodeForecast(t, messageText(m))
	}
}

func TestAnthropicThinking(t *testing.T) {
	t.Parallel()
	client := newAnthropicClient(start(t))
	params := messageParams(sampleText)
	params.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
	for mode, m := range bothMessages(t, client, params) {
		require.Len(t, m.Content, 2)
		assert.Equal(t, "The user said: "+sampleText, m.Content[0].Thinking)
		assert.NotEmpty(t, m.Content[0].Signature)

		// The server refuses thinking that does not fit its signature.
		next := params
		next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("Go on.")))
		answer, err := client.Messages.New(testContext(t), next)
		require.NoError(t, err, mode)
		assert.Equal(t, "Go on.", messageText(answer))
		next.Messages[1] = anthropic.NewAssistantMessage(anthropic.NewThinkingBlock(m.Content[0].Signature, "changed"))
		_, err = client.Messages.New(testContext(t), next)
		checkAnthropicError(t, err, 400, "invalid_request_error")
	}
}

func TestAnthropicModelsAndCounts(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newAnthropicClient(s)
	var ids []string
	models := client.Models.ListAutoPaging(testContext(t), anthropic.ModelListParams{Limit: anthropic.Int(1)})
	for models.Next() {
		if !strings.HasPrefix(models.Current().ID, "claude-") { // the names for Claude Code, without a gateway
			ids = append(ids, models.Current().ID)
		}
		assert.Positive(t, models.Current().CreatedAt.Unix())
	}
	require.NoError(t, models.Err())
	assert.ElementsMatch(t, []string{"demo-chat", "demo-complete", "demo-embed", "demo-rerank", "demo-moderation", "demo-image-large", "demo-image-small", "demo-speech", "demo-transcribe"}, ids)
	model, err := client.Models.Get(testContext(t), "demo-chat", anthropic.ModelGetParams{})
	require.NoError(t, err)
	assert.Equal(t, "demo-chat", model.ID)

	count, err := client.Messages.CountTokens(testContext(t), anthropic.MessageCountTokensParams{
		Model: "demo-chat", Messages: messageParams("one two three").Messages,
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, count.InputTokens, int64(3))
	assert.Zero(t, s.usage(t).Requests, "counting is not billed")
}

// checkAnthropicError checks an error of an API call.
func checkAnthropicError(t *testing.T, err error, status int, typ string) {
	t.Helper()
	var e *anthropic.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, status, e.StatusCode)
	assert.NotEmpty(t, e.RequestID)
	var body struct {
		Error     struct{ Type, Message string }
		RequestID string `json:"request_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(e.RawJSON()), &body), e.RawJSON())
	assert.Equal(t, typ, body.Error.Type)
	assert.NotEmpty(t, body.Error.Message)
	assert.Equal(t, e.RequestID, body.RequestID)
}

func TestAnthropicErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	unknown := messageParams("Hi")
	unknown.Model = "demo-unknown"
	_, err := newAnthropicClient(s).Messages.New(testContext(t), unknown)
	checkAnthropicError(t, err, 404, "not_found_error")
	stream := newAnthropicClient(s).Messages.NewStreaming(testContext(t), unknown)
	assert.False(t, stream.Next())
	checkAnthropicError(t, stream.Err(), 404, "not_found_error")
	_, err = newAnthropicClient(s, option.WithAPIKey("sk-wrong")).Messages.New(testContext(t), messageParams("Hi"))
	checkAnthropicError(t, err, 401, "authentication_error")
	_, err = newAnthropicClient(s).Messages.New(testContext(t), anthropic.MessageNewParams{Model: "demo-chat", MaxTokens: 1})
	checkAnthropicError(t, err, 400, "invalid_request_error")
}

func TestAnthropicRetries(t *testing.T) {
	t.Parallel()
	s := start(t, "-rpm", "20") // one request in 3 seconds
	client := newAnthropicClient(s)
	params := messageParams("Hi")
	params.MaxTokens = 10
	var err error
	for err == nil {
		_, err = client.Messages.New(testContext(t), params)
	}
	checkAnthropicError(t, err, 429, "rate_limit_error")
	_, err = client.Messages.New(testContext(t), params, option.WithMaxRetries(3))
	assert.NoError(t, err)
}

func TestAnthropicAbort(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	ctx, cancel := context.WithCancel(testContext(t))
	stream := newAnthropicClient(s).Messages.NewStreaming(ctx, messageParams(longText))
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

func TestAnthropicShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	stream := newAnthropicClient(s).Messages.NewStreaming(testContext(t), messageParams(longText))
	require.True(t, stream.Next())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop(t)
	}()
	m := new(anthropic.Message)
	for {
		require.NotEqual(t, "message_stop", stream.Current().Type)
		require.NoError(t, m.Accumulate(stream.Current()))
		if !stream.Next() {
			break
		}
	}
	require.Error(t, stream.Err())
	assert.Contains(t, stream.Err().Error(), "overloaded_error")
	assert.Contains(t, stream.Err().Error(), "shutting down")
	<-stopped
}

// A call that the token limit cuts has the input {} for this client when it is streamed, and tells
// in a whole reply that it was cut.
func TestAnthropicCutCall(t *testing.T) {
	t.Parallel()
	c := newAnthropicClient(start(t))
	p := messageParams("Hi")
	p.MaxTokens = 1
	p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "f", InputSchema: anthropic.ToolInputSchemaParam{
		Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"},
	}}}}
	whole, err := c.Messages.New(testContext(t), p)
	require.NoError(t, err)
	assert.Contains(t, string(whole.Content[0].Input), `{"INVALID_JSON":"{`)
	assert.Equal(t, anthropic.StopReasonMaxTokens, whole.StopReason)
	streamed := streamMessage(t, c, p)
	assert.Equal(t, anthropic.StopReasonMaxTokens, streamed.StopReason)
	assert.JSONEq(t, `{}`, string(streamed.Content[0].Input))
}

// The header of the version decides between the model lists of both APIs.
func TestAnthropicVersionHeader(t *testing.T) {
	t.Parallel()
	s := start(t)
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, s.baseURL()+"/models", nil)
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	res.Body.Close()
	assert.Equal(t, 401, res.StatusCode, "the paths of OpenAI's API need a bearer token")
}
