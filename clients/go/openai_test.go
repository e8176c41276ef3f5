package clients

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newOpenAIClient returns a client of github.com/openai/openai-go for s. It does
// not retry unless opts say so.
func newOpenAIClient(s *server, opts ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.baseURL()), option.WithAPIKey(key), option.WithMaxRetries(0),
	}, opts...)...)
}

// chatParams returns a chat request with text as the user's message.
func chatParams(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    "demo-chat",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

func TestOpenAIChat(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	tests := []struct {
		name   string
		params func(*openai.ChatCompletionNewParams)
		want   string
		finish string
	}{
		{"echo", func(*openai.ChatCompletionNewParams) {}, sampleText, "stop"},
		{"last user message", func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{
				openai.DeveloperMessage("Be brief."),
				openai.SystemMessage("Be kind."),
				openai.UserMessage("first"),
				openai.AssistantMessage("first"),
				openai.UserMessage("second"),
			}
		}, "second", "stop"},
		{"content in parts", func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{
				openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
					openai.TextContentPart("What is this?"),
					openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{
						URL: "data:image/gif;base64,R0lGODlhAQABAAAAACw=", Detail: "low",
					}),
				}),
			}
		}, "What is this?", "stop"},
		{"stop", func(p *openai.ChatCompletionNewParams) {
			p.Stop.OfString = openai.String("family")
		}, sampleText[:strings.Index(sampleText, "family")], "stop"},
		{"first of several stops", func(p *openai.ChatCompletionNewParams) {
			p.Stop.OfStringArray = []string{"nowhere", "The end", "fox"}
		}, "The \"quick\" ", "stop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			params := chatParams(sampleText)
			tt.params(&params)

			res, err := client.Chat.Completions.New(testContext(t), params)
			require.NoError(t, err)
			assert.NotEmpty(t, res.ID)
			assert.Equal(t, "demo-chat", res.Model)
			assert.EqualValues(t, "chat.completion", res.Object)
			assert.InDelta(t, time.Now().Unix(), res.Created, 60)
			require.Len(t, res.Choices, 1)
			assert.EqualValues(t, "assistant", res.Choices[0].Message.Role)
			assert.Equal(t, tt.want, res.Choices[0].Message.Content)
			assert.Equal(t, tt.finish, res.Choices[0].FinishReason)
			assert.Positive(t, res.Usage.PromptTokens)
			assert.Positive(t, res.Usage.CompletionTokens)
			assert.Equal(t, res.Usage.PromptTokens+res.Usage.CompletionTokens, res.Usage.TotalTokens)

			streamed := collect(t, client.Chat.Completions.NewStreaming(testContext(t), withUsage(params)))
			assert.Equal(t, tt.want, streamed.Choices[0].Message.Content)
			assert.Equal(t, tt.finish, streamed.Choices[0].FinishReason)
			assert.Equal(t, tokens(res.Usage), tokens(streamed.Usage))
		})
	}
}

func TestOpenAIMaxTokens(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	tests := []struct {
		name   string
		params func(*openai.ChatCompletionNewParams)
	}{
		{"max_tokens", func(p *openai.ChatCompletionNewParams) { p.MaxTokens = openai.Int(3) }},
		{"max_completion_tokens", func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(3) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			params := chatParams("one two three four five six seven eight nine ten")
			tt.params(&params)

			res, err := client.Chat.Completions.New(testContext(t), params)
			require.NoError(t, err)
			assert.Equal(t, "length", res.Choices[0].FinishReason)
			assert.EqualValues(t, 3, res.Usage.CompletionTokens)
			text := res.Choices[0].Message.Content
			assert.NotEmpty(t, text)
			assert.Less(t, len(text), len("one two three four five"))
			assert.True(t, strings.HasPrefix("one two three four five", text), text)

			streamed := collect(t, client.Chat.Completions.NewStreaming(testContext(t), withUsage(params)))
			assert.Equal(t, text, streamed.Choices[0].Message.Content)
			assert.Equal(t, "length", streamed.Choices[0].FinishReason)
			assert.Equal(t, tokens(res.Usage), tokens(streamed.Usage))
		})
	}
}

func TestOpenAIChoices(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	one, err := client.Chat.Completions.New(testContext(t), chatParams(sampleText))
	require.NoError(t, err)

	params := chatParams(sampleText)
	params.N = openai.Int(3)
	res, err := client.Chat.Completions.New(testContext(t), params)
	require.NoError(t, err)
	streamed := collect(t, client.Chat.Completions.NewStreaming(testContext(t), withUsage(params)))

	for _, r := range []*openai.ChatCompletion{res, streamed} {
		require.Len(t, r.Choices, 3)
		for i, c := range r.Choices {
			assert.EqualValues(t, i, c.Index)
			assert.Equal(t, sampleText, c.Message.Content)
			assert.Equal(t, "stop", c.FinishReason)
		}
		assert.Equal(t, one.Usage.PromptTokens, r.Usage.PromptTokens)
		assert.Equal(t, 3*one.Usage.CompletionTokens, r.Usage.CompletionTokens)
	}
}

// The chunks of a stream come in the order that the format requires, even where
// clients tolerate another.
func TestOpenAIStreamOrder(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	for _, usage := range []bool{false, true} {
		name := "without usage"
		if usage {
			name = "with usage"
		}
		t.Run(name, func(t *testing.T) {
			params := chatParams(sampleText)
			params.StreamOptions.IncludeUsage = openai.Bool(usage)
			s := client.Chat.Completions.NewStreaming(testContext(t), params)
			var chunks []openai.ChatCompletionChunk
			for s.Next() {
				chunks = append(chunks, s.Current())
			}
			require.NoError(t, s.Err())

			if usage {
				last := chunks[len(chunks)-1]
				assert.Empty(t, last.Choices)
				assert.Equal(t, "[]", last.JSON.Choices.Raw())
				assert.Positive(t, last.Usage.TotalTokens)
				chunks = chunks[:len(chunks)-1]
			}
			require.Greater(t, len(chunks), 3, "the text comes in several pieces")
			var text strings.Builder
			for i, c := range chunks {
				require.Len(t, c.Choices, 1)
				choice := c.Choices[0]
				text.WriteString(choice.Delta.Content)

				assert.Equal(t, chunks[0].ID, c.ID)
				assert.Equal(t, chunks[0].Created, c.Created)
				assert.Equal(t, "demo-chat", c.Model)
				assert.EqualValues(t, "chat.completion.chunk", c.Object)
				assert.Zero(t, c.Usage.TotalTokens)
				switch i {
				case 0:
					assert.Equal(t, "assistant", choice.Delta.Role)
					assert.Equal(t, "null", choice.JSON.FinishReason.Raw())
				case len(chunks) - 1:
					assert.Empty(t, choice.Delta.Role)
					assert.Equal(t, "null", choice.Delta.JSON.Content.Raw())
					assert.Equal(t, "stop", choice.FinishReason)
				default:
					assert.Empty(t, choice.Delta.Role)
					assert.NotEmpty(t, choice.Delta.Content)
					assert.Equal(t, "null", choice.JSON.FinishReason.Raw())
				}
			}
			assert.Equal(t, sampleText, text.String())
		})
	}
}

func TestOpenAITools(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	weather := openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name:        "forecast",
		Description: openai.String("The weather of the coming days"),
		Parameters:  forecastSchema,
		Strict:      openai.Bool(true),
	})
	other := openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "other"})

	type complete func(*testing.T, openai.ChatCompletionNewParams) *openai.ChatCompletion
	modes := map[string]complete{
		"whole": func(t *testing.T, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
			res, err := client.Chat.Completions.New(testContext(t), p)
			require.NoError(t, err)
			return res
		},
		"streamed": func(t *testing.T, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
			return collect(t, client.Chat.Completions.NewStreaming(testContext(t), p))
		},
	}
	choices := map[string]openai.ChatCompletionToolChoiceOptionUnionParam{
		"absent":   {},
		"auto":     {OfAuto: openai.String("auto")},
		"required": {OfAuto: openai.String("required")},
		"named": openai.ToolChoiceOptionFunctionToolChoice(
			openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "forecast"}),
	}
	for mode, complete := range modes {
		for name, choice := range choices {
			t.Run(mode+"/"+name, func(t *testing.T) {
				params := chatParams("How will the weather be?")
				params.Tools = []openai.ChatCompletionToolUnionParam{weather, other}
				params.ToolChoice = choice

				called := complete(t, params)
				assert.Equal(t, "tool_calls", called.Choices[0].FinishReason)
				message := called.Choices[0].Message
				require.Len(t, message.ToolCalls, 1)
				call := message.ToolCalls[0]
				assert.NotEmpty(t, call.ID)
				assert.Equal(t, "function", call.Type)
				assert.Equal(t, "forecast", call.Function.Name)
				city := decodeForecast(t, call.Function.Arguments).City

				params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
				params.Messages = append(params.Messages, message.ToParam(),
					openai.ToolMessage("It rains in "+city+".", call.ID))
				answered := complete(t, params)
				assert.Equal(t, "stop", answered.Choices[0].FinishReason)
				assert.Contains(t, answered.Choices[0].Message.Content, "It rains in "+city+".")
				assert.Empty(t, answered.Choices[0].Message.ToolCalls)
			})
		}
	}

	t.Run("none", func(t *testing.T) {
		params := chatParams("No tools, please.")
		params.Tools = []openai.ChatCompletionToolUnionParam{weather}
		params.ToolChoice.OfAuto = openai.String("none")
		res := modes["whole"](t, params)
		assert.Equal(t, "No tools, please.", res.Choices[0].Message.Content)
		assert.Empty(t, res.Choices[0].Message.ToolCalls)
	})
}

func TestOpenAIStructuredOutput(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	params := chatParams("Make a forecast.")
	params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "forecast", Schema: forecastSchema, Strict: openai.Bool(true),
		},
	}
	res, err := client.Chat.Completions.New(testContext(t), params)
	require.NoError(t, err)
	decodeForecast(t, res.Choices[0].Message.Content)
	streamed := collect(t, client.Chat.Completions.NewStreaming(testContext(t), params))
	assert.Equal(t, res.Choices[0].Message.Content, streamed.Choices[0].Message.Content)

	params.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{
		OfJSONObject: &shared.ResponseFormatJSONObjectParam{},
	}
	res, err = client.Chat.Completions.New(testContext(t), params)
	require.NoError(t, err)
	var object map[string]any
	decodeStrict(t, res.Choices[0].Message.Content, &object)
}

// The request of the client's own generated tests is answered. It has parameters
// that llmhttp does not know.
func TestOpenAIEveryParameter(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	res, err := client.Chat.Completions.New(testContext(t), openai.ChatCompletionNewParams{
		Model: "demo-chat",
		Messages: []openai.ChatCompletionMessageParamUnion{{
			OfDeveloper: &openai.ChatCompletionDeveloperMessageParam{
				Content: openai.ChatCompletionDeveloperMessageParamContentUnion{OfString: openai.String("string")},
				Name:    openai.String("name"),
			},
		}},
		Audio: openai.ChatCompletionAudioParam{
			Format: openai.ChatCompletionAudioParamFormatWAV,
			Voice: openai.ChatCompletionAudioParamVoiceUnion{
				OfChatCompletionAudioVoiceString2: openai.String("alloy"),
			},
		},
		FrequencyPenalty: openai.Float(-2),
		FunctionCall: openai.ChatCompletionNewParamsFunctionCallUnion{
			OfFunctionCallMode: openai.String("none"),
		},
		//lint:ignore SA1019 deprecated, but still supported
		Functions: []openai.ChatCompletionNewParamsFunction{{
			Name: "name", Description: openai.String("description"), Parameters: shared.FunctionParameters{"foo": "bar"},
		}},
		LogitBias:           map[string]int64{"foo": 0},
		Logprobs:            openai.Bool(true),
		MaxCompletionTokens: openai.Int(16),
		MaxTokens:           openai.Int(16),
		Metadata:            shared.Metadata{"foo": "string"},
		Modalities:          []string{"text"},
		N:                   openai.Int(1),
		ParallelToolCalls:   openai.Bool(true),
		Prediction: openai.ChatCompletionPredictionContentParam{
			Content: openai.ChatCompletionPredictionContentContentUnionParam{OfString: openai.String("string")},
		},
		PresencePenalty:  openai.Float(-2),
		PromptCacheKey:   openai.String("prompt-cache-key-1234"),
		ReasoningEffort:  shared.ReasoningEffortNone,
		ResponseFormat:   openai.ChatCompletionNewParamsResponseFormatUnion{OfText: &shared.ResponseFormatTextParam{}},
		SafetyIdentifier: openai.String("safety-identifier-1234"),
		Seed:             openai.Int(-9007199254740991),
		ServiceTier:      openai.ChatCompletionNewParamsServiceTierAuto,
		Stop:             openai.ChatCompletionNewParamsStopUnion{OfString: openai.String("\n")},
		Store:            openai.Bool(true),
		StreamOptions: openai.ChatCompletionStreamOptionsParam{
			IncludeObfuscation: openai.Bool(true), IncludeUsage: openai.Bool(true),
		},
		Temperature: openai.Float(1),
		ToolChoice:  openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")},
		Tools: []openai.ChatCompletionToolUnionParam{
			openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
				Name: "name", Parameters: shared.FunctionParameters{"foo": "bar"}, Strict: openai.Bool(true),
			}),
		},
		TopLogprobs: openai.Int(0),
		TopP:        openai.Float(1),
		User:        openai.String("user-1234"),
		Verbosity:   openai.ChatCompletionNewParamsVerbosityLow,
		WebSearchOptions: openai.ChatCompletionNewParamsWebSearchOptions{
			SearchContextSize: "low",
		},
	})
	require.NoError(t, err)
	assert.Equal(t, "stop", res.Choices[0].FinishReason)
}

func TestOpenAIImages(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newOpenAIClient(s)

	tests := []struct {
		model, size   string
		width, height int
		n             int64
	}{
		{"demo-image-small", "256x256", 256, 256, 3},
		{"demo-image-small", "", 1024, 1024, 1},
		{"demo-image-large", "1792x1024", 1792, 1024, 1},
	}
	for _, tt := range tests {
		t.Run(tt.model+" "+tt.size, func(t *testing.T) {
			params := openai.ImageGenerateParams{
				Model:   tt.model,
				Prompt:  "A lighthouse",
				Size:    openai.ImageGenerateParamsSize(tt.size),
				N:       openai.Int(tt.n),
				Quality: "standard",

				ResponseFormat: openai.ImageGenerateParamsResponseFormatURL,
			}
			byURL, err := client.Images.Generate(testContext(t), params)
			require.NoError(t, err)
			assert.InDelta(t, time.Now().Unix(), byURL.Created, 60)
			require.Len(t, byURL.Data, int(tt.n))
			urls := map[string]bool{}
			for _, d := range byURL.Data {
				width, height := s.fetchImageSize(t, d.URL)
				assert.Equal(t, [2]int{tt.width, tt.height}, [2]int{width, height})
				assert.Empty(t, d.B64JSON)
				urls[d.URL] = true
			}
			assert.Len(t, urls, int(tt.n), "the URLs differ")

			params.ResponseFormat = openai.ImageGenerateParamsResponseFormatB64JSON
			inline, err := client.Images.Generate(testContext(t), params)
			require.NoError(t, err)
			require.Len(t, inline.Data, int(tt.n))
			images := map[string]bool{}
			for _, d := range inline.Data {
				data, err := base64.StdEncoding.DecodeString(d.B64JSON)
				require.NoError(t, err)
				width, height := pngSize(t, data)
				assert.Equal(t, [2]int{tt.width, tt.height}, [2]int{width, height})
				assert.Empty(t, d.URL)
				images[d.B64JSON] = true
			}
			assert.Len(t, images, int(tt.n), "the images differ")
		})
	}
}

func TestOpenAIEmbeddings(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	embed := func(format openai.EmbeddingNewParamsEncodingFormat) *openai.CreateEmbeddingResponse {
		res, err := client.Embeddings.New(testContext(t), openai.EmbeddingNewParams{
			Model:          "demo-embed",
			Input:          openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a cat", "a dog"}},
			Dimensions:     openai.Int(32),
			EncodingFormat: format,
		})
		require.NoError(t, err)
		assert.Equal(t, "demo-embed", res.Model)
		assert.Positive(t, res.Usage.PromptTokens)
		assert.Equal(t, res.Usage.PromptTokens, res.Usage.TotalTokens)
		require.Len(t, res.Data, 2)
		for i, d := range res.Data {
			assert.EqualValues(t, i, d.Index)
			assert.Len(t, d.Embedding, 32)
			var square float64
			for _, x := range d.Embedding {
				square += x * x
			}
			assert.InDelta(t, 1, square, 1e-5, "a unit vector")
		}
		return res
	}
	absent := embed("")
	floats := embed(openai.EmbeddingNewParamsEncodingFormatFloat)
	coded := embed(openai.EmbeddingNewParamsEncodingFormatBase64)
	assert.Equal(t, byte('['), absent.Data[0].JSON.Embedding.Raw()[0])
	assert.Equal(t, byte('"'), coded.Data[0].JSON.Embedding.Raw()[0])
	assert.NotEqual(t, floats.Data[0].Embedding, floats.Data[1].Embedding)
	for i := range floats.Data {
		assert.Equal(t, floats.Data[i].Embedding, absent.Data[i].Embedding)
		assert.InDeltaSlice(t, floats.Data[i].Embedding, coded.Data[i].Embedding, 1e-7)
	}
}

func TestOpenAIModels(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))

	var ids []string
	models := client.Models.ListAutoPaging(testContext(t))
	for models.Next() {
		m := models.Current()
		ids = append(ids, m.ID)
		got, err := client.Models.Get(testContext(t), m.ID)
		require.NoError(t, err)
		assert.JSONEq(t, m.RawJSON(), got.RawJSON())
		assert.EqualValues(t, "model", got.Object)
		assert.NotEmpty(t, got.OwnedBy)
	}
	require.NoError(t, models.Err())
	assert.ElementsMatch(t, []string{"demo-chat", "demo-complete", "demo-embed", "demo-rerank", "demo-moderation", "demo-image-large", "demo-image-small", "demo-speech", "demo-transcribe"}, ids)
}

func TestOpenAIErrors(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t))
	chat := func(params openai.ChatCompletionNewParams, opts ...option.RequestOption) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.Chat.Completions.New(ctx, params, opts...)
			return err
		}
	}
	streamed := func(params openai.ChatCompletionNewParams) func(context.Context) error {
		return func(ctx context.Context) error {
			s := client.Chat.Completions.NewStreaming(ctx, params)
			for s.Next() {
			}
			return s.Err()
		}
	}
	image := func(params openai.ImageGenerateParams) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.Images.Generate(ctx, params)
			return err
		}
	}
	hot, unknown := chatParams("Hi"), chatParams("Hi")
	hot.Temperature = openai.Float(2.5)
	unknown.Model = "demo-unknown"

	tests := []struct {
		name   string
		call   func(context.Context) error
		status int
		code   string
		param  string
	}{
		{"wrong key", chat(chatParams("Hi"), option.WithAPIKey("sk-wrong")), 401, "invalid_api_key", ""},
		{"no key", chat(chatParams("Hi"), option.WithHeaderDel("Authorization")), 401, "", ""},
		{"temperature", chat(hot), 400, "decimal_above_max_value", "temperature"},
		{"temperature, streamed", streamed(hot), 400, "decimal_above_max_value", "temperature"},
		{"no messages", chat(chatParams("Hi"), option.WithJSONSet("messages", []any{})), 400, "empty_array", "messages"},
		{"role", chat(chatParams("Hi"), option.WithJSONSet("messages.0.role", "robot")), 400, "invalid_value", "messages[0].role"},
		{"unknown model", chat(unknown), 404, "model_not_found", ""},
		{"unknown model, streamed", streamed(unknown), 404, "model_not_found", ""},
		{"size of another model", image(openai.ImageGenerateParams{
			Model: "demo-image-small", Prompt: "A cat", Size: "1792x1024",
		}), 400, "invalid_value", "size"},
		{"too many images", image(openai.ImageGenerateParams{
			Model: "demo-image-small", Prompt: "A cat", N: openai.Int(11),
		}), 400, "integer_above_max_value", "n"},
		{"embeddings of an unknown model", func(ctx context.Context) error {
			_, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
				Model: "demo-unknown", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("Hi")},
			})
			return err
		}, 404, "model_not_found", ""},
		{"retrieving an unknown model", func(ctx context.Context) error {
			_, err := client.Models.Get(ctx, "demo-unknown")
			return err
		}, 404, "model_not_found", ""},
		{"unknown path", func(ctx context.Context) error {
			return client.Post(ctx, "somewhere/else", map[string]any{}, nil)
		}, 404, "", ""},
		{"wrong method", func(ctx context.Context) error {
			return client.Post(ctx, "models", map[string]any{}, nil)
		}, 405, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			failed := apiError(t, tt.call(testContext(t)))
			assert.Equal(t, tt.status, failed.StatusCode)
			assert.Equal(t, "invalid_request_error", failed.Type)
			assert.Equal(t, tt.code, failed.Code)
			assert.Equal(t, tt.param, failed.Param)
			assert.NotEmpty(t, failed.Message)
			assert.Equal(t, tt.param == "", failed.JSON.Param.Raw() == "null", failed.RawJSON())
			assert.NotEmpty(t, failed.Response.Header.Get("X-Request-Id"))
		})
	}
}

func TestOpenAIRateLimit(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t, "-rpm", "2", "-tpm", "100000"))

	var res *http.Response
	for remaining := range 2 {
		_, err := client.Chat.Completions.New(testContext(t), chatParams("Hi"), option.WithResponseInto(&res))
		require.NoError(t, err)
		assert.Equal(t, "2", res.Header.Get("X-Ratelimit-Limit-Requests"))
		assert.Equal(t, []string{"1", "0"}[remaining], res.Header.Get("X-Ratelimit-Remaining-Requests"))
		assert.Equal(t, "100000", res.Header.Get("X-Ratelimit-Limit-Tokens"))
	}

	_, err := client.Chat.Completions.New(testContext(t), chatParams("Hi"))
	failed := apiError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, failed.StatusCode)
	assert.Equal(t, "requests", failed.Type)
	assert.Equal(t, "rate_limit_exceeded", failed.Code)
	header := failed.Response.Header
	assert.Regexp(t, `^([1-9]|[12]\d|30)$`, header.Get("Retry-After"))
	assert.Regexp(t, `^[1-9]\d{0,4}$`, header.Get("Retry-After-Ms"))
	assert.Equal(t, "0", header.Get("X-Ratelimit-Remaining-Requests"))
	reset, err := time.ParseDuration(header.Get("X-Ratelimit-Reset-Requests"))
	require.NoError(t, err)
	assert.Greater(t, reset, 30*time.Second)
	assert.LessOrEqual(t, reset, time.Minute)
}

// The client waits for the time in Retry-After, and then succeeds.
func TestOpenAIRetryAfter(t *testing.T) {
	t.Parallel()
	client := newOpenAIClient(start(t, "-rpm", "20")) // one request in 3 seconds

	_, err := client.Models.List(testContext(t))
	for err == nil {
		_, err = client.Models.List(testContext(t))
	}
	require.Equal(t, http.StatusTooManyRequests, apiError(t, err).StatusCode)

	var attempts atomic.Int32
	count := func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		attempts.Add(1)
		return next(r)
	}
	_, err = client.Models.List(testContext(t), option.WithMaxRetries(2), option.WithMiddleware(count))
	require.NoError(t, err)
	assert.EqualValues(t, 2, attempts.Load(), "attempts")
}

func TestOpenAIDisconnect(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	client := newOpenAIClient(s)

	aborts := map[string]func(*ssestream.Stream[openai.ChatCompletionChunk], context.CancelFunc){
		"by context": func(_ *ssestream.Stream[openai.ChatCompletionChunk], cancel context.CancelFunc) { cancel() },
		"by closing": func(s *ssestream.Stream[openai.ChatCompletionChunk], _ context.CancelFunc) { s.Close() },
	}
	for name, abort := range aborts {
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		stream := client.Chat.Completions.NewStreaming(ctx, chatParams(longText))
		for range 5 {
			require.True(t, stream.Next(), name)
		}
		abort(stream, cancel)
	}

	s.awaitUsage(t, 2)
	res, err := client.Chat.Completions.New(testContext(t), chatParams("Still there?"))
	require.NoError(t, err)
	assert.Equal(t, "Still there?", res.Choices[0].Message.Content)
	s.stop(t)
	assert.NotContains(t, s.out.String(), "requests were interrupted")
}

// After SIGTERM the server accepts no new connections. A stream that takes too
// long ends with an error.
func TestOpenAIShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, "-delay", "50ms")
	client := newOpenAIClient(s)

	stream := client.Chat.Completions.NewStreaming(testContext(t), chatParams(longText))
	require.True(t, stream.Next())
	go s.stop(t)
	waitUntil(t, "the first refused connection", func() bool {
		_, err := client.Models.List(testContext(t))
		return errors.Is(err, syscall.ECONNREFUSED)
	})

	var finish string
	for stream.Next() {
		finish += stream.Current().Choices[0].FinishReason
	}
	var streamErr *ssestream.StreamError
	require.True(t, errors.As(stream.Err(), &streamErr), "%v", stream.Err())
	assert.Regexp(t, `^{"error":{"message":".+","type":"server_error"`, string(streamErr.Event.Data))
	assert.Empty(t, finish)
}

func TestOpenAIUsage(t *testing.T) {
	t.Parallel()
	s := start(t)
	client := newOpenAIClient(s)
	var want usage

	for _, text := range []string{"Hi", sampleText, longText} {
		res, err := client.Chat.Completions.New(testContext(t), chatParams(text))
		require.NoError(t, err)
		want.add(res.Usage.PromptTokens, res.Usage.CompletionTokens, res.Usage.TotalTokens)
		res = collect(t, client.Chat.Completions.NewStreaming(testContext(t), withUsage(chatParams(text))))
		want.add(res.Usage.PromptTokens, res.Usage.CompletionTokens, res.Usage.TotalTokens)
		embedded, err := client.Embeddings.New(testContext(t), openai.EmbeddingNewParams{
			Model: "demo-embed", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String(text)},
		})
		require.NoError(t, err)
		want.add(embedded.Usage.PromptTokens, 0, embedded.Usage.TotalTokens)
		want.Requests += 3
	}
	images, err := client.Images.Generate(testContext(t), openai.ImageGenerateParams{
		Model: "demo-image-small", Prompt: "A lighthouse", Size: "256x256", N: openai.Int(2),
	})
	require.NoError(t, err)
	want.add(images.Usage.InputTokens, images.Usage.OutputTokens, images.Usage.TotalTokens)
	want.Requests++
	want.Images = 2

	assert.Equal(t, want, s.usage(t))

	var report struct {
		Object     string  `json:"object"`
		TotalUsage float64 `json:"total_usage"`
		DailyCosts []struct {
			Timestamp float64 `json:"timestamp"`
			LineItems []struct {
				Name string  `json:"name"`
				Cost float64 `json:"cost"`
				usage
			} `json:"line_items"`
		} `json:"daily_costs"`
	}
	require.NoError(t, client.Get(testContext(t), "dashboard/billing/usage", nil, &report))
	assert.Equal(t, "list", report.Object)
	byModel := map[string]int64{}
	var sum usage
	var cost float64
	for _, day := range report.DailyCosts { // two days if the test runs around midnight
		for _, item := range day.LineItems {
			byModel[item.Name] += item.Requests
			sum.add(item.PromptTokens, item.CompletionTokens, item.TotalTokens)
			sum.Requests += item.Requests
			sum.Images += item.Images
			cost += item.Cost
		}
	}
	assert.Equal(t, map[string]int64{"demo-chat": 6, "demo-embed": 3, "demo-image-small": 1}, byModel)
	assert.Equal(t, want, sum)
	assert.InDelta(t, cost, report.TotalUsage, 1e-9)
}

// collect reads a stream with the client's own accumulator.
func collect(t *testing.T, s *ssestream.Stream[openai.ChatCompletionChunk]) *openai.ChatCompletion {
	t.Helper()
	var acc openai.ChatCompletionAccumulator
	for s.Next() {
		require.True(t, acc.AddChunk(s.Current()), "the accumulator refuses %s", s.Current().RawJSON())
	}
	require.NoError(t, s.Err())
	require.NotEmpty(t, acc.Choices)
	return &acc.ChatCompletion
}

func withUsage(params openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	return params
}

// tokens returns the numbers of u without its raw JSON.
func tokens(u openai.CompletionUsage) [3]int64 {
	return [3]int64{u.PromptTokens, u.CompletionTokens, u.TotalTokens}
}

func apiError(t *testing.T, err error) *openai.Error {
	t.Helper()
	var failed *openai.Error
	require.True(t, errors.As(err, &failed), "%v", err)
	return failed
}
