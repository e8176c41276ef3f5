package textfilter_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/textfilter"
)

// redacting is the filter of the tests: it redacts both ways.
func redacting(context.Context) textfilter.Filter {
	return textfilter.Filter{Request: redact.Request, Reply: redact.Reply}
}

// refusing returns a filter that refuses texts with word.
func refusing(word string) func(context.Context) textfilter.Filter {
	return func(context.Context) textfilter.Filter {
		return textfilter.Filter{
			Request: func(_ textfilter.Kind, text string) (string, error) {
				if strings.Contains(text, word) {
					return "", textfilter.ErrContentFiltered
				}
				return text, nil
			},
			Reply: refuseWord(word),
		}
	}
}

// A chatFormat is one of the formats in which a client can chat.
type chatFormat struct {
	path, body string // with one %s for members, such as "stream"
	filtered   []string
}

// chatFormats are all formats of this module. Each body has the user's text "Hello!".
var chatFormats = map[string]chatFormat{
	"chat":      {chatPath, `{"model":"m","messages":[{"role":"user","content":"Hello!"}]%s}`, []string{`"finish_reason":"content_filter"`}},
	"messages":  {"/v1/messages", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hello!"}]%s}`, []string{`"stop_reason":"refusal"`}},
	"responses": {"/v1/responses", `{"model":"m","input":"Hello!"%s}`, []string{`"status":"incomplete"`, `"reason":"content_filter"`}},
}

// formatModes are the two ways to ask for a reply in all formats.
var formatModes = map[string]string{"whole": "", "stream": `,"stream":true`}

// readerText returns all that a client can put together of a reply: the strings that are at the same
// place in the events of a stream, joined, and strings of JSON in strings decoded.
func readerText(t *testing.T, body string) string {
	t.Helper()
	documents := []string{body}
	if !strings.HasPrefix(body, "{") {
		documents = nil
		for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "[DONE]" {
				documents = append(documents, data)
			}
		}
	}
	joined := make(map[string]string)
	for _, doc := range documents {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(doc), &v), doc)
		joinStrings(v, fmt.Sprint(v["type"]), joined)
	}
	return fmt.Sprintf("%q", joined) + fmt.Sprint(joined)
}

func joinStrings(v any, path string, joined map[string]string) {
	switch v := v.(type) {
	case string:
		joined[path] += v
	case map[string]any:
		for name, value := range v {
			joined[path] += " " + name
			joinStrings(value, path+"."+name, joined)
		}
	case []any:
		for _, value := range v {
			joinStrings(value, path+"[]", joined)
		}
	}
}

// No secret in a text of a Delta reaches a client, wherever it is divided, in no format, whole or
// streamed.
func TestNew_SecretsInReplies(t *testing.T) {
	const secret = "s3cr\"t-kéy" // short, because each place is tried in each format
	replacer := replacer.New(secret, filterMark)
	filter := func(context.Context) textfilter.Filter { return textfilter.Filter{Reply: replacer.Reply} }
	for i, path := range deltaPlaces() {
		if notFiltered[path] != "" {
			continue
		}
		t.Run(path, func(t *testing.T) {
			marked := 0
			for at := range len(secret) {
				if at > 0 && comesWhole(path) || strings.Contains(path, "Extra") && !utf8.ValidString(secret[:at]) {
					continue
				}
				backend := textfilter.New(chatting(func() llm.ChatStream {
					if at == 0 {
						return streamDeltas(newDelta(i, secret))
					}
					return streamDeltas(newDelta(i, secret[:at]), newDelta(i, secret[at:]))
				}), filter)
				h := formatHandler(backend)
				for name, f := range chatFormats {
					for mode, member := range formatModes {
						w := serveFormat(h, f.path, fmt.Sprintf(f.body, member))
						require.Equal(t, 200, w.Code, "%s", w.Body)
						text := readerText(t, w.Body.String())
						require.NotContains(t, text, secret, "%s %s divided at %d", name, mode, at)
						if strings.Contains(text, filterMark) {
							marked++
						}
					}
				}
			}
			assert.Positive(t, marked, "the text is in no format")
		})
	}
}

// No secret in a text of a request reaches the Backend, in no format.
func TestNew_SecretsInRequests(t *testing.T) {
	secret := jsonText(filterSecret)
	secret = secret[1 : len(secret)-1]
	inner := strings.ReplaceAll(strings.ReplaceAll(secret, `\`, `\\`), `"`, `\"`) // in arguments
	for path, bodies := range map[string][]string{
		chatPath: {
			`{"model":"m","messages":[{"role":"system","content":"%s"},{"role":"user","name":"%s","content":[{"type":"text","text":"a %s"},{"type":"image_url","image_url":{"url":"https://%s"}}]},
			{"role":"assistant","content":"%s","reasoning_content":"%s","refusal":"%s","reasoning_details":[{"type":"reasoning.text","text":"%s"},{"type":"reasoning.summary","summary":"%s"}],
			"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"x\":\"INNER\"}"}},{"id":"d","type":"custom","custom":{"name":"g","input":"%s"}}]},
			{"role":"tool","tool_call_id":"c","content":"%s"},{"role":"assistant","content":"x","reasoning":"%s"}],"stop":["%s"],
			"tools":[{"type":"function","function":{"name":"f","description":"%s","parameters":{"type":"object","description":"%s"}}},{"type":"custom","custom":{"name":"g","description":"%s"}}],
			"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"%s","schema":{"description":"%s"}}},
			"metadata":{"a":"%s"},"user":"%s","prediction":{"type":"content","content":"%s"}}`,
		},
		"/v1/messages": {
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"%s"},{"type":"text","text":"b %s"}],"messages":[{"role":"user","content":[{"type":"text","text":"%s"},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"%s"},"title":"%s"}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"%s","signature":"s"},{"type":"tool_use","id":"c","name":"f","input":{"x":"%s"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"%s"}]}],
			"tools":[{"name":"f","description":"%s","input_schema":{"type":"object","properties":{"x":{"description":"%s"}}}}],"stop_sequences":["%s"],"metadata":{"user_id":"%s"}}`,
		},
		"/v1/responses": {
			`{"model":"m","instructions":"%s","input":[{"role":"user","content":[{"type":"input_text","text":"%s"}]},
			{"type":"reasoning","summary":[{"type":"summary_text","text":"%s"}]},
			{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":\"INNER\"}"},{"type":"function_call_output","call_id":"c","output":"%s"},
			{"role":"assistant","content":[{"type":"output_text","text":"%s"}]}],
			"tools":[{"type":"function","name":"f","description":"%s","parameters":{"type":"object","title":"%s"}}],"metadata":{"a":"%s"},"user":"%s"}`,
		},
		"/v1/rerank":                {`{"model":"m","query":"%s","documents":["%s",{"text":"a %s","title":"%s"}],"return_documents":true}`},
		completionsPath:             {`{"model":"m","prompt":["%s","b %s"],"suffix":"%s","stop":["%s"],"user":"%s","stream_options":{"x":"%s"}}`, `{"model":"m","prompt":"%s","stream":true}`},
		moderationsPath:             {`{"model":"m","input":["%s","b %s"],"user":"%s"}`, `{"model":"m","input":[{"type":"text","text":"%s"}]}`},
		embeddingsPath:              {`{"model":"m","input":["%s","b %s"],"user":"%s"}`, `{"model":"m","input":"%s"}`},
		imagesPath:                  {`{"model":"m","prompt":"%s","user":"%s","style":"%s"}`},
		"/v1/messages/count_tokens": {`{"model":"m","system":"%s","messages":[{"role":"user","content":"%s"}]}`},
	} {
		for _, body := range bodies {
			body = strings.ReplaceAll(strings.ReplaceAll(body, "%s", secret), "INNER", inner)
			got := new(recordingBackend)
			w := serveFormat(formatHandler(textfilter.New(got, redacting)), path, body)
			require.Equal(t, 200, w.Code, "%s: %s", path, w.Body)
			require.NotEmpty(t, got.requests)
			plain := new(recordingBackend)
			serveFormat(formatHandler(plain), path, body)
			for i, req := range got.requests {
				text := strings.Join(stringsIn(reflect.ValueOf(req)), "\x00")
				assert.NotContains(t, text, filterSecret, path)
				assert.NotContains(t, text, secret, "in arguments, to %s", path)
				unfiltered := strings.Join(stringsIn(reflect.ValueOf(plain.requests[i])), "\x00")
				assert.Equal(t, strings.Count(unfiltered, filterSecret)+strings.Count(unfiltered, secret), strings.Count(text, filterMark), path)
			}
		}
	}
}

// A recordingBackend keeps what it gets.
type recordingBackend struct{ requests []any }

func (b *recordingBackend) Chat(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
	b.requests = append(b.requests, r)
	return llm.Reply("Hello!")
}

func (b *recordingBackend) Embed(_ context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	b.requests = append(b.requests, r)
	vectors := slices.Repeat([][]float32{{0.25}}, r.Input.Len())
	return &llm.EmbeddingResponse{Vectors: vectors, Extra: llm.Extra{"echo": json.RawMessage(jsonText(filterSecret))}}, nil
}

func (b *recordingBackend) GenerateImages(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
	b.requests = append(b.requests, r)
	image := llm.Image{URL: "https://x", RevisedPrompt: "better " + filterSecret, Extra: llm.Extra{"alt": json.RawMessage(jsonText(filterSecret))}}
	return &llm.ImageResponse{Data: []llm.Image{image}, Extra: llm.Extra{"echo": json.RawMessage(jsonText(filterSecret))}}, nil
}

func (b *recordingBackend) Rerank(_ context.Context, r *rerank.Request) (*rerank.Response, error) {
	b.requests = append(b.requests, r)
	return &rerank.Response{Results: []rerank.Result{{Index: 1, Score: 1}, {Index: 0}}}, nil
}

func (b *recordingBackend) Complete(_ context.Context, r *completion.Request) llm.ChatStream {
	b.requests = append(b.requests, r)
	return llm.Reply("Hello!")
}

func (b *recordingBackend) Moderate(_ context.Context, r *moderation.Request) (*moderation.Response, error) {
	b.requests = append(b.requests, r)
	resp := &moderation.Response{Results: make([]moderation.Result, r.Input.Results())}
	resp.Results[0].Extra = llm.Extra{"reason": json.RawMessage(jsonText(filterSecret))}
	return resp, nil
}

func (b *recordingBackend) CountTokens(_ context.Context, r *llm.ChatRequest) (int, error) {
	b.requests = append(b.requests, r)
	return 7, nil
}

// Texts in the replies of other operations are filtered too.
func TestNew_OtherReplies(t *testing.T) {
	h := formatHandler(textfilter.New(new(recordingBackend), redacting))
	for path, body := range map[string]string{imagesPath: imageBody, embeddingsPath: embeddingBody, moderationsPath: moderationBody} {
		w := serveFormat(h, path, body)
		assert.Equal(t, 200, w.Code)
		assert.NotContains(t, readerText(t, w.Body.String()), filterSecret)
		assert.Contains(t, w.Body.String(), filterMark)
	}
	h = formatHandler(textfilter.New(new(recordingBackend), refusing("s3cr")))
	for path, body := range map[string]string{imagesPath: imageBody, embeddingsPath: embeddingBody, moderationsPath: moderationBody} {
		w := serveFormat(h, path, body)
		assert.Equal(t, 400, w.Code, path)
		assert.Contains(t, w.Body.String(), "content_filter", path)
	}
}

// Segments, words and log probabilities have the text of a transcription in pieces, or another text.
func TestNew_PiecesOfTranscriptions(t *testing.T) {
	type (
		chunk   = audio.TranscriptionChunk
		segment = audio.TranscriptionSegment
		word    = audio.TranscriptionWord
	)
	half := len(filterSecret) / 2
	first, second := filterSecret[:half], filterSecret[half:]
	logprobs := llm.Extra{"logprobs": json.RawMessage(`[{"token":"` + first + `"},{"token":"` + second + `"}]`)}
	note := func() llm.Extra { return llm.Extra{"note": json.RawMessage(jsonText(filterSecret))} }
	divided := []segment{{Text: "my " + first}, {Text: second + " is", End: 1}}
	plain := []segment{{Text: " Hello", End: 1}}
	for name, tt := range map[string]struct {
		reply chunk
		kept  bool // the segments
	}{
		"harmless":         {chunk{Text: "Hello", Segments: plain, Words: []word{{Word: "Hello"}}}, true},
		"in the text":      {chunk{Text: "my " + filterSecret + " is", Segments: divided, Extra: logprobs}, false},
		"only in segments": {chunk{Segments: divided}, false},
		"only in words":    {chunk{Text: "Hello", Segments: plain, Words: []word{{Word: filterSecret}}}, false},
		"as a speaker":     {chunk{Text: "Hello", Segments: []segment{{Text: "Hello", Speaker: filterSecret}}}, true},
		"beside a segment": {chunk{Text: "Hello", Segments: []segment{{Text: "Hello", Extra: note()}}}, true},
		"beside the text":  {chunk{Text: "Hello", Segments: plain, Extra: note()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := textfilter.New(&transcriber{stream: func(yield func(*chunk, error) bool) { yield(&tt.reply, nil) }}, redacting).(audio.Transcriber)
			got, err := audio.CollectTranscription(b.Transcribe(t.Context(), new(audio.TranscriptionRequest)))
			require.NoError(t, err)
			assert.Equal(t, tt.kept, got.Segments != nil)
			texts := strings.Join(stringsIn(reflect.ValueOf(got)), "\x00")
			assert.NotContains(t, texts, filterSecret)
			assert.NotContains(t, texts, second)
			assert.NotContains(t, got.Extra, "logprobs")
			assert.NotContains(t, string(got.Extra["note"]), filterSecret)
		})
	}
}

// A transcription that is collected for a filter is not silent: it may take longer than Options.Bounds.Timeout.
// If it is refused, the client gets a 400, also for a stream.
func TestNew_TranscriptionsThatTakeLong(t *testing.T) {
	for name, fields := range map[string]map[string]string{"whole": {"model": "m"}, "stream": {"model": "m", "stream": "true"}} {
		for filter, want := range map[string]int{"bad": 400, "absent": 200} {
			t.Run(name+" "+filter, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &transcriber{stream: func(yield func(*audio.TranscriptionChunk, error) bool) {
						for range 30 {
							time.Sleep(100 * time.Millisecond)
							if !yield(&audio.TranscriptionChunk{Text: "bad "}, nil) {
								return
							}
						}
					}}
					h := handlerWith(textfilter.New(b, refusingWords(filter)), llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: time.Second}})
					w := serveRecording(t, h, fields)
					assert.Equal(t, want, w.Code, "%s", w.Body)
					if want == 200 {
						assert.Contains(t, w.Body.String(), strings.Repeat("bad ", 30))
					} else {
						assert.NotContains(t, w.Body.String(), "bad ")
					}
				})
			})
		}
	}
}

// What is collected of a transcription has a bound, and ends when the reader has left.
func TestNew_LargeTranscriptions(t *testing.T) {
	read := 0
	text := strings.Repeat("x", 1<<20)
	b := &transcriber{stream: func(yield func(*audio.TranscriptionChunk, error) bool) {
		for range 300 {
			if read++; !yield(&audio.TranscriptionChunk{Text: text}, nil) {
				return
			}
		}
	}}
	filtered := textfilter.New(b, redacting).(audio.Transcriber)
	_, err := audio.CollectTranscription(filtered.Transcribe(t.Context(), new(audio.TranscriptionRequest)))
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 502, e.Status)
	assert.Contains(t, e.Message, "67108864 bytes")
	assert.Equal(t, 65, read)

	read = 0
	for range filtered.Transcribe(t.Context(), new(audio.TranscriptionRequest)) {
		break
	}
	assert.Equal(t, 1, read)
}

// A request that is refused does not reach the Backend, and costs no tokens.
func TestNew_RefusedRequest(t *testing.T) {
	for name, f := range chatFormats {
		for mode, member := range formatModes {
			got, usage := new(recordingBackend), new(usageLog)
			h := handlerWith(textfilter.New(got, refusing("Hello")), llmhttp.Options{Usage: usage})
			w := serveFormat(h, f.path, fmt.Sprintf(f.body, member))
			assert.Equal(t, 400, w.Code, "%s %s", name, mode)
			assert.Contains(t, w.Body.String(), "The request was refused by a content filter.", "%s %s", name, mode)
			assert.Empty(t, got.requests)
			require.Len(t, usage.records, 1)
			assert.Zero(t, usage.records[0].Units.PromptTokens)
		}
	}
	// An error of the filter's own is the client's.
	own := func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: func(textfilter.Kind, string) (string, error) {
			return "", errors.Join(textfilter.ErrContentFiltered, llm.Errorf(451, "blocked", "Not here."))
		}}
	}
	w := serveFormat(formatHandler(textfilter.New(new(recordingBackend), own)), chatPath, chatBody)
	assert.Equal(t, 451, w.Code)
	assert.Contains(t, w.Body.String(), "Not here.")
}

// A reply that is refused in mid-stream ends as one that the model's own filter has ended, with what
// came before, in each format.
func TestNew_RefusedReply(t *testing.T) {
	for name, f := range chatFormats {
		for mode, member := range formatModes {
			h := formatHandler(textfilter.New(chatting(func() llm.ChatStream { return textStream("It is ", "zy", "x to", " qqq.") }), refusingWords("zyx")))
			w := serveFormat(h, f.path, fmt.Sprintf(f.body, member))
			require.Equal(t, 200, w.Code, "%s %s", name, mode)
			for _, want := range f.filtered {
				assert.Contains(t, w.Body.String(), want, "%s %s", name, mode)
			}
			text := readerText(t, w.Body.String())
			assert.Contains(t, text, "It is ", "%s %s", name, mode)
			assert.NotContains(t, text, "zy", "%s %s", name, mode)
			assert.NotContains(t, text, "qqq", "%s %s", name, mode)
		}
	}
}

// refusingWords returns a filter that refuses replies with word, which a reader never sees in part.
func refusingWords(word string) func(context.Context) textfilter.Filter {
	return func(context.Context) textfilter.Filter {
		return textfilter.Filter{Reply: func(t *textfilter.ReplyText) (release, hold string, err error) {
			if strings.Contains(t.Text, word) {
				return "", "", textfilter.ErrContentFiltered
			}
			for n := min(len(word)-1, len(t.Text)); n > 0 && !t.End; n-- {
				if end := len(t.Text) - n; strings.HasPrefix(word, t.Text[end:]) {
					return t.Text[:end], t.Text[end:], nil
				}
			}
			return t.Text, "", nil
		}}
	}
}

// Each request has a filter of its own, which may depend on its key.
func TestNew_PerRequest(t *testing.T) {
	made := 0
	b := textfilter.New(memory.Echo(), func(ctx context.Context) textfilter.Filter {
		made++
		name := llmhttp.KeyFrom(ctx).Account
		return textfilter.Filter{Request: func(_ textfilter.Kind, text string) (string, error) {
			return text + " " + name + fmt.Sprint(made), nil
		}}
	})
	h := formatHandler(b)
	assert.Contains(t, serveFormat(h, chatPath, chatBody).Body.String(), "Hello, how are you? acme1")
	assert.Contains(t, readerText(t, serveFormat(h, chatPath, streamBody).Body.String()), "Hello, how are you? acme2")
}

// A mistake of the Backend is logged, although the filter puts it right, and its usage is recorded.
func TestNew_MisusesAndUsage(t *testing.T) {
	b := textfilter.New(chatting(func() llm.ChatStream {
		return jsonStream(t, `{"choices":[{"index":0,"delta":{"content":"a"}},{"index":7,"delta":{"content":"b"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`)
	}), redacting)
	var log bytes.Buffer
	usage := new(usageLog)
	h := handlerWith(b, llmhttp.Options{Usage: usage, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	assert.Contains(t, serveFormat(h, chatPath, chatBody).Body.String(), `"content":"a"`)
	require.Len(t, usage.records, 1)
	assert.EqualValues(t, 3, usage.records[0].Units.PromptTokens)
	assert.Contains(t, log.String(), "the Backend yielded choices that were not asked for")
}

func TestNew_NothingPassesUnknown(t *testing.T) {
	_, isUnknown := textfilter.New(&unknownBackend{}, redacting).(interface{ Translate(string) string })
	assert.False(t, isUnknown)
	assert.Panics(t, func() { textfilter.New(nil, redacting) })
	assert.Panics(t, func() { textfilter.New(new(recordingBackend), nil) })
	assert.True(t, slices.Contains(deltaPlaces(), "Delta.Content"))
}

// A stream that is nil fails, whether replies are filtered or not.
func TestNew_NilStreams(t *testing.T) {
	for name, f := range map[string]textfilter.Filter{"replies": {Reply: redact.Reply}, "requests": {Request: redact.Request}} {
		b := textfilter.New(nilStreams{}, func(context.Context) textfilter.Filter { return f })
		for method, err := range map[string]error{
			"Chat":             streamError(b.Chat(t.Context(), new(llm.ChatRequest))),
			"Complete":         streamError(b.(completion.Completer).Complete(t.Context(), new(completion.Request))),
			"StreamImages":     streamError(b.(llmhttp.ImageStreamer).StreamImages(t.Context(), new(llm.ImageRequest))),
			"StreamImageEdits": streamError(b.(imageedit.Streamer).StreamImageEdits(t.Context(), new(imageedit.Request))),
			"Speak":            streamError(b.(audio.Speaker).Speak(t.Context(), new(audio.SpeechRequest))),
			"Transcribe":       streamError(b.(audio.Transcriber).Transcribe(t.Context(), new(audio.TranscriptionRequest))),
		} {
			assert.ErrorContains(t, err, "returned a nil ChatStream", "%s with a filter of %s", method, name)
		}
	}
}

// streamError returns the error with which a stream ends.
func streamError[C any](s iter.Seq2[*C, error]) (failure error) {
	for _, err := range s {
		failure = err
	}
	return failure
}

// A nilStreams is a Backend whose streams are nil.
type nilStreams struct{}

func (nilStreams) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return nil }

func (nilStreams) Complete(context.Context, *completion.Request) llm.ChatStream { return nil }

func (nilStreams) StreamImages(context.Context, *llm.ImageRequest) llm.ImageStream { return nil }

func (nilStreams) GenerateImages(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
	panic("the stream is nil, and not missing")
}

func (nilStreams) StreamImageEdits(context.Context, *imageedit.Request) llm.ImageStream { return nil }

func (nilStreams) EditImages(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
	panic("the stream is nil, and not missing")
}

func (nilStreams) Speak(context.Context, *audio.SpeechRequest) audio.SpeechStream { return nil }

func (nilStreams) Transcribe(context.Context, *audio.TranscriptionRequest) audio.TranscriptionStream {
	return nil
}

// An unknownBackend has a method that this package does not know.
type unknownBackend struct{ recordingBackend }

func (*unknownBackend) Translate(s string) string { return s }

// A client gets its own documents back, and not what the Backend got.
func TestNew_RerankedDocuments(t *testing.T) {
	w := serveFormat(formatHandler(textfilter.New(new(recordingBackend), redacting)), "/v1/rerank",
		`{"model":"m","query":"q","documents":["a",`+jsonText(filterSecret)+`],"return_documents":true}`)
	assert.Equal(t, 200, w.Code)
	assert.Contains(t, w.Body.String(), jsonText(filterSecret))
}

// Token numbers are texts that a filter cannot read.
func TestNew_TokenNumbers(t *testing.T) {
	const tokens = `{"model":"m","input":[[1,2],[3]]}`
	got := new(recordingBackend)
	w := serveFormat(formatHandler(textfilter.New(got, redacting)), embeddingsPath, tokens)
	assert.Equal(t, 400, w.Code)
	assert.Empty(t, got.requests)
	onlyReplies := func(context.Context) textfilter.Filter { return textfilter.Filter{Reply: redact.Reply} }
	assert.Equal(t, 200, serveFormat(formatHandler(textfilter.New(new(recordingBackend), onlyReplies)), embeddingsPath, tokens).Code)
}

// The texts of a reply are filtered wherever they are divided, and log probabilities, which repeat
// them, are dropped. Token numbers are texts that a filter cannot read.
func TestNew_Completions(t *testing.T) {
	half := len(filterSecret) / 2
	b := &completer{stream: func() llm.ChatStream {
		first, last := llm.TextChunk("my "+filterSecret[:half]), llm.TextChunk(filterSecret[half:]+"!")
		first.Choices[0].Extra = llm.Extra{"logprobs": json.RawMessage(`{"tokens":["` + filterSecret[:half] + `"]}`)}
		last.Choices[0].FinishReason = llm.FinishStop
		return streamOf(first, last)
	}}
	h := formatHandler(textfilter.New(b, redacting))
	for _, stream := range []string{"true", "false"} {
		body := serveFormat(h, completionsPath, `{"model":"m","prompt":"a","logprobs":1,"stream":`+stream+`}`).Body.String()
		assert.Contains(t, body, filterMark)
		assert.NotContains(t, body, filterSecret[:half])
		assert.NotContains(t, body, `"tokens"`)
	}
	w := serveFormat(h, completionsPath, `{"model":"m","prompt":[1,2]}`)
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), `"param":"prompt"`)
}

// The request for a stream of images, and what is text in its events, is filtered.
func TestNew_ImageStreams(t *testing.T) {
	image := &llm.Image{Data: []byte("x"), Extra: llm.Extra{"note": json.RawMessage(`"a secret"`)}}
	b := textfilter.New(&drawer{draw: func(r *llm.ImageRequest) llm.ImageStream {
		assert.Equal(t, "a *** hat", r.Prompt)
		return func(yield func(*llm.ImageChunk, error) bool) { yield(&llm.ImageChunk{Image: image}, nil) }
	}}, func(context.Context) textfilter.Filter {
		hide := strings.NewReplacer("secret", "***").Replace
		return textfilter.Filter{
			Request: func(_ textfilter.Kind, s string) (string, error) { return hide(s), nil },
			Reply:   func(r *textfilter.ReplyText) (string, string, error) { return hide(r.Text), "", nil },
		}
	})
	const edit = `,"images":[{"image_url":"data:image/png;base64,eA=="}]`
	for path, members := range map[string]string{imagesPath: "", "/v1/images/edits": edit} {
		w := serveFormat(formatHandler(b), path, `{"model":"m","prompt":"a secret hat","stream":true`+members+`}`)
		assert.Contains(t, w.Body.String(), `"note":"a ***"`)
		assert.Equal(t, `"a secret"`, string(image.Extra["note"]), "the image belongs to the Backend")
	}

	refused := textfilter.New(new(drawer), func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: func(textfilter.Kind, string) (string, error) {
			return "", fmt.Errorf("no: %w", textfilter.ErrContentFiltered)
		}}
	})
	for path, members := range map[string]string{imagesPath: "", "/v1/images/edits": edit} {
		w := serveFormat(formatHandler(refused), path, `{"model":"m","prompt":"p","stream":true`+members+`}`)
		assert.Equal(t, 400, w.Code)
		assert.Contains(t, w.Body.String(), `"code":"content_filter"`)
	}
}
