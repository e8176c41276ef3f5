package clients

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/sashabaranov/go-openai/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newGoOpenAIClient returns a client of github.com/sashabaranov/go-openai for s.
func newGoOpenAIClient(s *server, key string) *openai.Client {
	config := openai.DefaultConfig(key)
	config.BaseURL = s.baseURL()
	return openai.NewClientWithConfig(config)
}

// chatRequest returns a chat request with text as the user's message.
func chatRequest(text string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model:    "demo-chat",
		Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: text}},
	}
}

func TestGoOpenAIChat(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	tests := []struct {
		name   string
		change func(*openai.ChatCompletionRequest)
		want   string
		finish openai.FinishReason
	}{
		{"echo", func(*openai.ChatCompletionRequest) {}, sampleText, openai.FinishReasonStop},
		{"conversation", func(r *openai.ChatCompletionRequest) {
			r.Messages = []openai.ChatCompletionMessage{
				{Role: openai.ChatMessageRoleSystem, Content: "Be kind."},
				{Role: openai.ChatMessageRoleUser, Content: "first"},
				{Role: openai.ChatMessageRoleAssistant, Content: "first"},
				{Role: openai.ChatMessageRoleUser, Content: "second"},
			}
		}, "second", openai.FinishReasonStop},
		{"content in parts", func(r *openai.ChatCompletionRequest) {
			r.Messages[0] = openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, MultiContent: []openai.ChatMessagePart{
				{Type: openai.ChatMessagePartTypeText, Text: "What is this?"},
				{Type: openai.ChatMessagePartTypeImageURL, ImageURL: &openai.ChatMessageImageURL{
					URL: "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
				}},
			}}
		}, "What is this?", openai.FinishReasonStop},
		{"stop", func(r *openai.ChatCompletionRequest) {
			r.Stop = []string{"fox"}
		}, "The \"quick\" ", openai.FinishReasonStop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			request := chatRequest(sampleText)
			tt.change(&request)

			res, err := client.CreateChatCompletion(testContext(t), request)
			require.NoError(t, err)
			require.Len(t, res.Choices, 1)
			assert.Equal(t, openai.ChatMessageRoleAssistant, res.Choices[0].Message.Role)
			assert.Equal(t, tt.want, res.Choices[0].Message.Content)
			assert.Equal(t, tt.finish, res.Choices[0].FinishReason)
			assert.Positive(t, res.Usage.PromptTokens)
			assert.Positive(t, res.Usage.CompletionTokens)

			streamed := readStream(t, client, request)
			require.Len(t, streamed.texts, 1)
			assert.Equal(t, tt.want, streamed.texts[0])
			assert.Equal(t, tt.finish, streamed.finish[0])
			assert.Equal(t, res.Usage.PromptTokens, streamed.usage.PromptTokens)
			assert.Equal(t, res.Usage.CompletionTokens, streamed.usage.CompletionTokens)
			assert.Equal(t, res.Usage.TotalTokens, streamed.usage.TotalTokens)
		})
	}
}

func TestGoOpenAIMaxTokens(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	request := chatRequest("one two three four five six seven eight nine ten")
	//lint:ignore SA1019 deprecated, but still supported
	request.MaxTokens = 3
	res, err := client.CreateChatCompletion(testContext(t), request)
	require.NoError(t, err)
	assert.Equal(t, openai.FinishReasonLength, res.Choices[0].FinishReason)
	assert.Equal(t, 3, res.Usage.CompletionTokens)
	assert.NotEmpty(t, res.Choices[0].Message.Content)
	assert.True(t, strings.HasPrefix("one two three four five", res.Choices[0].Message.Content))

	streamed := readStream(t, client, request)
	assert.Equal(t, res.Choices[0].Message.Content, streamed.texts[0])
	assert.Equal(t, openai.FinishReasonLength, streamed.finish[0])
}

func TestGoOpenAIChoices(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	request := chatRequest(sampleText)
	request.N = 3
	res, err := client.CreateChatCompletion(testContext(t), request)
	require.NoError(t, err)
	require.Len(t, res.Choices, 3)
	for i, c := range res.Choices {
		assert.Equal(t, i, c.Index)
		assert.Equal(t, sampleText, c.Message.Content)
	}
	streamed := readStream(t, client, request)
	assert.Equal(t, map[int]string{0: sampleText, 1: sampleText, 2: sampleText}, streamed.texts)
	assert.Equal(t, res.Usage.TotalTokens, streamed.usage.TotalTokens)
}

func TestGoOpenAITools(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	request := chatRequest("How will the weather be?")
	request.Tools = []openai.Tool{{
		Type:     openai.ToolTypeFunction,
		Function: &openai.FunctionDefinition{Name: "forecast", Parameters: forecastSchema, Strict: true},
	}}
	for _, choice := range []any{nil, "auto", "required", openai.ToolChoice{
		Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: "forecast"},
	}} {
		request.ToolChoice = choice
		res, err := client.CreateChatCompletion(testContext(t), request)
		require.NoError(t, err)
		assert.Equal(t, openai.FinishReasonToolCalls, res.Choices[0].FinishReason)
		message := res.Choices[0].Message
		require.Len(t, message.ToolCalls, 1)
		call := message.ToolCalls[0]
		assert.NotEmpty(t, call.ID)
		assert.Equal(t, openai.ToolTypeFunction, call.Type)
		assert.Equal(t, "forecast", call.Function.Name)
		city := decodeForecast(t, call.Function.Arguments).City

		streamed := readStream(t, client, request)
		assert.Equal(t, openai.FinishReasonToolCalls, streamed.finish[0])
		assert.Equal(t, "forecast", streamed.call.Name)
		assert.Equal(t, call.Function.Arguments, streamed.call.Arguments)

		request := request
		request.ToolChoice = nil
		request.Messages = append(request.Messages[:1:1], message, openai.ChatCompletionMessage{
			Role: openai.ChatMessageRoleTool, ToolCallID: call.ID, Content: "It rains in " + city + ".",
		})
		res, err = client.CreateChatCompletion(testContext(t), request)
		require.NoError(t, err)
		assert.Equal(t, openai.FinishReasonStop, res.Choices[0].FinishReason)
		assert.Contains(t, res.Choices[0].Message.Content, "It rains in "+city+".")
	}
}

func TestGoOpenAIStructuredOutput(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	type step struct {
		Explanation string  `json:"explanation"`
		Minutes     float64 `json:"minutes"`
	}
	type recipe struct {
		Title string `json:"title"`
		Meal  string `json:"meal" enum:"breakfast,lunch,dinner"`
		Vegan bool   `json:"vegan"`
		Steps []step `json:"steps"`
	}
	schema, err := jsonschema.GenerateSchemaForType(recipe{})
	require.NoError(t, err)
	request := chatRequest("A recipe, please.")
	request.ResponseFormat = &openai.ChatCompletionResponseFormat{
		Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "recipe", Schema: schema, Strict: true},
	}
	res, err := client.CreateChatCompletion(testContext(t), request)
	require.NoError(t, err)
	var got recipe
	require.NoError(t, schema.Unmarshal(res.Choices[0].Message.Content, &got))
	decodeStrict(t, res.Choices[0].Message.Content, &got)
	assert.Contains(t, []string{"breakfast", "lunch", "dinner"}, got.Meal)
	assert.Equal(t, res.Choices[0].Message.Content, readStream(t, client, request).texts[0])

	request.ResponseFormat = &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONObject}
	res, err = client.CreateChatCompletion(testContext(t), request)
	require.NoError(t, err)
	var object map[string]any
	decodeStrict(t, res.Choices[0].Message.Content, &object)
}

func TestGoOpenAIImages(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newGoOpenAIClient(s, key)

	request := openai.ImageRequest{
		Model: "demo-image-large", Prompt: "A lighthouse", N: 2, Size: openai.CreateImageSize1024x1792,
		Quality: openai.CreateImageQualityHD, ResponseFormat: openai.CreateImageResponseFormatURL,
	}
	byURL, err := client.CreateImage(testContext(t), request)
	require.NoError(t, err)
	require.Len(t, byURL.Data, 2)
	for _, d := range byURL.Data {
		width, height := s.fetchImageSize(t, d.URL)
		assert.Equal(t, [2]int{1024, 1792}, [2]int{width, height})
	}
	assert.NotEqual(t, byURL.Data[0].URL, byURL.Data[1].URL)

	request.ResponseFormat = openai.CreateImageResponseFormatB64JSON
	inline, err := client.CreateImage(testContext(t), request)
	require.NoError(t, err)
	require.Len(t, inline.Data, 2)
	for _, d := range inline.Data {
		data, err := base64.StdEncoding.DecodeString(d.B64JSON)
		require.NoError(t, err)
		width, height := pngSize(t, data)
		assert.Equal(t, [2]int{1024, 1792}, [2]int{width, height})
	}
	assert.NotEqual(t, inline.Data[0].B64JSON, inline.Data[1].B64JSON)
}

func TestGoOpenAIEmbeddings(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	embed := func(format openai.EmbeddingEncodingFormat) []openai.Embedding {
		res, err := client.CreateEmbeddings(testContext(t), openai.EmbeddingRequestStrings{
			Model: "demo-embed", Input: []string{"a cat", "a dog"}, Dimensions: 32, EncodingFormat: format,
		})
		require.NoError(t, err)
		assert.Positive(t, res.Usage.PromptTokens)
		require.Len(t, res.Data, 2)
		for i, d := range res.Data {
			assert.Equal(t, i, d.Index)
			assert.Len(t, d.Embedding, 32)
			square, err := d.DotProduct(&d)
			require.NoError(t, err)
			assert.InDelta(t, 1, square, 1e-5, "a unit vector")
		}
		assert.NotEqual(t, res.Data[0].Embedding, res.Data[1].Embedding)
		return res.Data
	}
	floats := embed(openai.EmbeddingEncodingFormatFloat)
	assert.Equal(t, floats, embed(""))
	assert.Equal(t, floats, embed(openai.EmbeddingEncodingFormatBase64))
}

func TestGoOpenAIModels(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t), key)

	list, err := client.ListModels(testContext(t))
	require.NoError(t, err)
	var ids []string
	for _, m := range list.Models {
		ids = append(ids, m.ID)
		got, err := client.GetModel(testContext(t), m.ID)
		require.NoError(t, err)
		assert.Equal(t, [3]any{m.ID, m.CreatedAt, m.OwnedBy}, [3]any{got.ID, got.CreatedAt, got.OwnedBy})
		assert.Equal(t, "model", got.Object)
	}
	assert.ElementsMatch(t, []string{"demo-chat", "demo-complete", "demo-embed", "demo-rerank", "demo-moderation", "demo-image-large", "demo-image-small", "demo-speech", "demo-transcribe"}, ids)
}

func TestGoOpenAIErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newGoOpenAIClient(s, key)
	chat := func(client *openai.Client, change func(*openai.ChatCompletionRequest)) func(context.Context) error {
		request := chatRequest("Hi")
		change(&request)
		return func(ctx context.Context) error {
			_, err := client.CreateChatCompletion(ctx, request)
			return err
		}
	}

	tests := []struct {
		name   string
		call   func(context.Context) error
		status int
		code   any
		param  string
	}{
		{"wrong key", chat(newGoOpenAIClient(s, "sk-wrong"), func(*openai.ChatCompletionRequest) {}), 401, "invalid_api_key", ""},
		{"temperature", chat(client, func(r *openai.ChatCompletionRequest) {
			r.Temperature = 2.5
		}), 400, "decimal_above_max_value", "temperature"},
		{"no messages", chat(client, func(r *openai.ChatCompletionRequest) {
			r.Messages = []openai.ChatCompletionMessage{}
		}), 400, "empty_array", "messages"},
		{"role", chat(client, func(r *openai.ChatCompletionRequest) {
			r.Messages = append(r.Messages, openai.ChatCompletionMessage{Role: "robot", Content: "Hi"})
		}), 400, "invalid_value", "messages[1].role"},
		{"unknown model", chat(client, func(r *openai.ChatCompletionRequest) {
			r.Model = "demo-unknown"
		}), 404, "model_not_found", ""},
		{"unknown model, streamed", func(ctx context.Context) error {
			request := chatRequest("Hi")
			request.Model = "demo-unknown"
			_, err := client.CreateChatCompletionStream(ctx, request)
			return err
		}, 404, "model_not_found", ""},
		{"GetModel of an unknown model", func(ctx context.Context) error {
			_, err := client.GetModel(ctx, "demo-unknown")
			return err
		}, 404, "model_not_found", ""},
		{"size of another model", func(ctx context.Context) error {
			_, err := client.CreateImage(ctx, openai.ImageRequest{
				Model: "demo-image-small", Prompt: "A cat", Size: openai.CreateImageSize1792x1024,
			})
			return err
		}, 400, "invalid_value", "size"},
		{"endpoint that is not served", func(ctx context.Context) error {
			_, err := client.ListFiles(ctx)
			return err
		}, 404, 0, ""}, // the client decodes null as 0
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var failed *openai.APIError
			err := tt.call(testContext(t))
			require.True(t, errors.As(err, &failed), "%v", err)
			assert.Equal(t, tt.status, failed.HTTPStatusCode)
			assert.Equal(t, "invalid_request_error", failed.Type)
			assert.Equal(t, tt.code, failed.Code)
			if tt.param == "" {
				assert.Nil(t, failed.Param)
			} else if assert.NotNil(t, failed.Param) {
				assert.Equal(t, tt.param, *failed.Param)
			}
			assert.NotEmpty(t, failed.Message)
		})
	}
}

func TestGoOpenAIRateLimit(t *testing.T) {
	t.Parallel()
	client := newGoOpenAIClient(start(t, "-rpm", "2", "-tpm", "100000"), key)

	first, err := client.CreateChatCompletion(testContext(t), chatRequest("Hi"))
	require.NoError(t, err)
	limits := first.GetRateLimitHeaders()
	assert.Equal(t, 2, limits.LimitRequests)
	assert.Equal(t, 1, limits.RemainingRequests)
	assert.Equal(t, 100000, limits.LimitTokens)
	assert.Less(t, limits.RemainingTokens, 100000)
	assert.WithinRange(t, limits.ResetRequests.Time(), time.Now().Add(20*time.Second), time.Now().Add(31*time.Second))

	second, err := client.CreateChatCompletionStream(testContext(t), chatRequest("Hi"))
	require.NoError(t, err)
	defer second.Close()
	assert.Zero(t, second.GetRateLimitHeaders().RemainingRequests)
	assert.Equal(t, "2", second.Header().Get("X-Ratelimit-Limit-Requests"))

	_, err = client.CreateChatCompletion(testContext(t), chatRequest("Hi"))
	var failed *openai.APIError
	require.True(t, errors.As(err, &failed), "%v", err)
	assert.Equal(t, http.StatusTooManyRequests, failed.HTTPStatusCode)
	assert.Equal(t, "requests", failed.Type)
	assert.Equal(t, "rate_limit_exceeded", failed.Code)
}

func TestGoOpenAIDisconnect(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	client := newGoOpenAIClient(s, key)

	stream, err := client.CreateChatCompletionStream(testContext(t), chatRequest(longText))
	require.NoError(t, err)
	for range 5 {
		_, err := stream.Recv()
		require.NoError(t, err)
	}
	require.NoError(t, stream.Close())

	s.awaitUsage(t, 1)
	res, err := client.CreateChatCompletion(testContext(t), chatRequest("Still there?"))
	require.NoError(t, err)
	assert.Equal(t, "Still there?", res.Choices[0].Message.Content)
	s.stop(t)
	assert.NotContains(t, s.out.String(), "requests were interrupted")
}

func TestGoOpenAIShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	stream, err := newGoOpenAIClient(s, key).CreateChatCompletionStream(testContext(t), chatRequest(longText))
	require.NoError(t, err)
	defer stream.Close()
	_, err = stream.Recv()
	require.NoError(t, err)

	go s.stop(t)
	for err == nil {
		_, err = stream.Recv()
	}
	var streamErr *openai.APIError
	require.True(t, errors.As(err, &streamErr), "%v", err)
	assert.Equal(t, "server_error", streamErr.Type)
}

func TestGoOpenAIUsage(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newGoOpenAIClient(s, key)
	var want usage
	add := func(u openai.Usage) {
		want.add(int64(u.PromptTokens), int64(u.CompletionTokens), int64(u.TotalTokens))
		want.Requests++
	}

	for _, text := range []string{"Hi", sampleText, longText} {
		res, err := client.CreateChatCompletion(testContext(t), chatRequest(text))
		require.NoError(t, err)
		add(res.Usage)
		add(*readStream(t, client, chatRequest(text)).usage)
		embedded, err := client.CreateEmbeddings(testContext(t), openai.EmbeddingRequestStrings{
			Model: "demo-embed", Input: []string{text, "Hi"},
		})
		require.NoError(t, err)
		add(embedded.Usage)
	}
	assert.Equal(t, want, s.usage(t))
}

// A streamedReply is the content of a stream.
type streamedReply struct {
	texts  map[int]string              // by the index of the choice
	finish map[int]openai.FinishReason // by the index of the choice
	call   openai.FunctionCall         // of the first choice
	usage  *openai.Usage
}

// readStream sends request for a stream with usage, and reads the stream.
func readStream(t *testing.T, client *openai.Client, request openai.ChatCompletionRequest) streamedReply {
	t.Helper()
	request.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := client.CreateChatCompletionStream(testContext(t), request)
	require.NoError(t, err)
	defer stream.Close()

	h := streamedReply{texts: map[int]string{}, finish: map[int]openai.FinishReason{}}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			require.NotNil(t, h.usage)
			return h
		}
		require.NoError(t, err)
		require.Nil(t, h.usage, "a chunk after the usage")
		h.usage = chunk.Usage
		for _, c := range chunk.Choices {
			require.Empty(t, h.finish[c.Index], "a chunk after the finish reason")
			h.texts[c.Index] += c.Delta.Content
			for _, call := range c.Delta.ToolCalls {
				require.NotNil(t, call.Index)
				require.Zero(t, *call.Index)
				h.call.Name += call.Function.Name
				h.call.Arguments += call.Function.Arguments
			}
			h.finish[c.Index] = c.FinishReason
		}
	}
}
