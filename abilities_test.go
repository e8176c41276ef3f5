package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	toolagent "github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/textfilter"
)

// filterSecret is what redacting removes. JSON escapes some of its characters.
const filterSecret = "s3cr\"t\\ü-key"

// redacting is a filter of texts that removes filterSecret, both ways.
func redacting(context.Context) textfilter.Filter {
	redact := replacer.New(filterSecret, "[redacted]")
	return textfilter.Filter{Request: redact.Request, Reply: redact.Reply}
}

func jsonText(s string) string {
	b, _ := llmhttp.AppendJSON(nil, s)
	return string(b)
}

// A passing Backend is a wrapper of a host that lets everything pass.
type passing struct{ llmhttp.Backend }

func (p passing) Unwrap(context.Context) llmhttp.Backend { return p.Backend }

// A hiding Backend is a wrapper of a host that has Chat alone.
type hiding struct{ llmhttp.Backend }

// What happens to a call on its way through a wrapper.
const (
	passes  = "passes"
	filters = "filters" // without the secret
	hides   = "hides"   // as if it were not there
)

// wrappers are what this module and hosts put around a Backend.
var wrappers = map[string]func(t *testing.T, b llmhttp.Backend) llmhttp.Backend{
	"route": func(t *testing.T, b llmhttp.Backend) llmhttp.Backend {
		r, err := route.New([]route.Route{{Model: "*", Targets: []route.Target{{Name: "a", Backend: b}}}}, nil)
		require.NoError(t, err)
		return r
	},
	"textfilter": func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend { return textfilter.New(b, redacting) },
	"agent": func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend {
		return toolagent.New(b, func(context.Context) ([]toolagent.Tool, error) { return nil, nil }, nil)
	},
	"Choices":        func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend { return llmhttp.Choices(b) },
	"Swap":           func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend { return llmhttp.NewSwappableBackend(b) },
	"ChatOnly":       func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend { return llmhttp.ChatOnly(b) },
	"with Unwrap":    func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend { return passing{passing{b}} },
	"without Unwrap": func(_ *testing.T, b llmhttp.Backend) llmhttp.Backend { return passing{hiding{passing{b}}} },
}

// An ability is something that a Backend may do, with a request that needs it and has filterSecret.
type ability struct {
	of     reflect.Type // its interface
	method string       // and the path
	body   string
	hidden int // the status of the reply if the ability is hidden

	filter, agent string // what a filter and an agent do; the other wrappers hide all or nothing
}

var abilities = []ability{
	{reflect.TypeFor[llmhttp.Backend](), chatPath, `{"model":"m","messages":[{"role":"user","content":%s}]}`, 0, filters, passes},
	{reflect.TypeFor[completion.Completer](), completionsPath, `{"model":"m","prompt":%s}`, 404, filters, hides},
	{reflect.TypeFor[llmhttp.Embedder](), embeddingsPath, `{"model":"m","input":%s}`, 404, filters, hides},
	{reflect.TypeFor[imageedit.Editor](), imageEditsPath, `{"model":"m","image":"x","prompt":%s}`, 404, filters, hides},
	{reflect.TypeFor[imageedit.Streamer](), imageEditsPath, `{"model":"m","image":"x","prompt":%s,"stream":true}`, 404, filters, hides},
	{reflect.TypeFor[llmhttp.ImageGenerator](), imagesPath, `{"model":"m","prompt":%s}`, 404, filters, hides},
	{reflect.TypeFor[llmhttp.ImageSizer](), imagesPath, `{"model":"m","prompt":%s,"size":"256x256"}`, 404, passes, hides},
	{reflect.TypeFor[llmhttp.ImageStreamer](), imagesPath, `{"model":"m","prompt":%s,"stream":true}`, 404, filters, hides},
	{reflect.TypeFor[llmhttp.ModelLister](), modelsPath, ``, 404, passes, passes},
	{reflect.TypeFor[moderation.Moderator](), moderationsPath, `{"model":"m","input":%s}`, 404, filters, hides},
	{reflect.TypeFor[rerank.Reranker](), rerankPath, `{"model":"m","query":%s,"documents":["a"]}`, 404, filters, hides},
	{reflect.TypeFor[audio.Speaker](), speechPath, `{"model":"m","input":%s,"voice":"alloy"}`, 404, filters, hides},
	{reflect.TypeFor[llmhttp.TokenCounter](), "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":%s}]}`, 200, filters, hides},
	{reflect.TypeFor[audio.Transcriber](), transcriptionsPath, `{"file":"RIFF","model":"m","prompt":%s}`, 404, filters, hides},
}

// through returns what the wrapper does with the ability.
func (a *ability) through(wrapper string) string {
	switch wrapper {
	case "textfilter":
		return a.filter
	case "agent":
		return a.agent
	case "ChatOnly", "without Unwrap":
		if a.hidden != 0 {
			return hides
		}
	}
	return passes
}

// calledMethods tells what has happened to a Backend with all abilities: passes or filters, by the
// interfaces of the methods that were called.
type calledMethods map[reflect.Type]string

// noteCall notes that a method of the interface A was called with a request that has texts, or nil.
func noteCall[A any](called calledMethods, req any) {
	result := passes
	if req != nil && !strings.Contains(strings.Join(textsOf(req), ""), filterSecret) {
		result = filters
	}
	called[reflect.TypeFor[A]()] = result
}

// textsOf returns the texts of a request.
func textsOf(req any) (texts []string) {
	_ = textfilter.Rewrite(req, func(_ textfilter.Kind, text string) (string, error) {
		texts = append(texts, text)
		return text, nil
	})
	return texts
}

// noted returns a Backend with all abilities that notes which are used.
func noted(called calledMethods) *countingStub {
	var plain stubBackend
	return &countingStub{stubBackend{
		chat: func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
			noteCall[llmhttp.Backend](called, r)
			return plain.Chat(ctx, r)
		},
		complete: func(ctx context.Context, r *completion.Request) llm.ChatStream {
			noteCall[completion.Completer](called, r)
			return plain.Complete(ctx, r)
		},
		models: func(context.Context) ([]llm.Model, error) {
			noteCall[llmhttp.ModelLister](called, nil)
			return nil, nil
		},
		images: func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
			noteCall[llmhttp.ImageGenerator](called, r)
			return plain.GenerateImages(ctx, r)
		},
		edit: func(ctx context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
			noteCall[imageedit.Editor](called, r)
			return plain.EditImages(ctx, r)
		},
		draw: func(ctx context.Context, r *llm.ImageRequest) llm.ImageStream {
			noteCall[llmhttp.ImageStreamer](called, r)
			return plain.StreamImages(ctx, r)
		},
		editDraw: func(ctx context.Context, r *imageedit.Request) llm.ImageStream {
			noteCall[imageedit.Streamer](called, r)
			return plain.StreamImageEdits(ctx, r)
		},
		sizes: func(ctx context.Context, model string) ([]string, error) {
			noteCall[llmhttp.ImageSizer](called, nil)
			return plain.ImageSizes(ctx, model)
		},
		embed: func(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			noteCall[llmhttp.Embedder](called, r)
			return plain.Embed(ctx, r)
		},
		speak: func(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
			noteCall[audio.Speaker](called, r)
			return plain.Speak(ctx, r)
		},
		rerank: func(ctx context.Context, r *rerank.Request) (*rerank.Response, error) {
			noteCall[rerank.Reranker](called, r)
			return plain.Rerank(ctx, r)
		},
		transcribe: func(ctx context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
			noteCall[audio.Transcriber](called, r)
			return plain.Transcribe(ctx, r)
		},
		moderate: func(ctx context.Context, r *moderation.Request) (*moderation.Response, error) {
			noteCall[moderation.Moderator](called, r)
			return plain.Moderate(ctx, r)
		},
	}, called}
}

// A countingStub is a stubBackend that counts tokens.
type countingStub struct {
	stubBackend
	called calledMethods
}

func (b *countingStub) CountTokens(_ context.Context, r *llm.ChatRequest) (int, error) {
	noteCall[llmhttp.TokenCounter](b.called, r)
	return 7, nil
}

// Each ability of a Backend passes a wrapper, is filtered by it, or is hidden: then it is not called,
// and the client gets what it gets of a Backend without it.
func TestAbilities(t *testing.T) {
	for name, wrap := range wrappers {
		for _, a := range abilities {
			t.Run(name+"/"+a.of.Name(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					called := make(calledMethods)
					s := startPipeServer(t, config{
						backend: wrap(t, noted(called)),
						opts:    llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}},
					})
					method, body := http.MethodPost, strings.ReplaceAll(a.body, "%s", jsonText(filterSecret))
					if body == "" {
						method = http.MethodGet
					}
					r := s.do(method, a.method, body, func(r *http.Request) { r.Header.Set("Anthropic-Version", "2023-06-01") })
					want, status := a.through(name), 200
					if want == hides {
						status = a.hidden
						assert.Empty(t, called)
						assert.Empty(t, s.usage.records(), "a request that nothing was called for is not recorded")
					} else {
						assert.Equal(t, want, called[a.of])
					}
					assert.Equal(t, status, r.StatusCode, r.body)
				})
			})
		}
	}
}

func TestOperation_SupportedBy(t *testing.T) {
	all := new(stubBackend)
	for _, op := range llmhttp.Operations() {
		isChat := op == llmhttp.OperationChat
		assert.Equal(t, isChat, op.SupportedBy(t.Context(), chatOnly), "%s", op)
		assert.True(t, op.SupportedBy(t.Context(), all), "%s", op)
		assert.True(t, op.SupportedBy(t.Context(), textfilter.New(all, redacting)), "%s", op)
		assert.True(t, op.SupportedBy(t.Context(), llmhttp.NewSwappableBackend(all)), "%s", op)
		assert.Equal(t, isChat, op.SupportedBy(t.Context(), llmhttp.NewSwappableBackend(llmhttp.ChatOnly(all))), "%s", op)
	}
	for _, op := range []llmhttp.Operation{"", "none"} {
		assert.False(t, op.SupportedBy(t.Context(), all), "%q", op)
	}
}

// What filters or hides has no Unwrap, so that it hides an ability that is added later.
func TestAbilities_Unwrap(t *testing.T) {
	for name, wrap := range wrappers {
		_, unwraps := wrap(t, noted(nil)).(interface {
			Unwrap(ctx context.Context) llmhttp.Backend
		})
		want := slices.Contains([]string{"Choices", "Swap", "with Unwrap", "without Unwrap"}, name) // the last is around one without
		assert.Equal(t, want, unwraps, name)
	}
}

// A request for what the Backend does not have costs nothing: it is refused before its body is read.
func TestAbilities_MissingIsFree(t *testing.T) {
	s := startServer(t, config{backend: llmhttp.ChatOnly(new(stubBackend)), keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.Rate{N: 1, Per: time.Hour}})})
	for _, body := range []string{embeddingBody, embeddingBody, "{"} {
		r := s.do("POST", embeddingsPath, body)
		assert.Equal(t, "Invalid URL (POST /v1/embeddings)", r.checkError(t, 404).Message)
		assert.Equal(t, "1", r.Header.Get("X-Ratelimit-Remaining-Requests"))
		assert.Equal(t, llmhttp.ClassNotFound, lastSummary(s).ErrorClass)
	}
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
	assert.Equal(t, llmhttp.OperationChat, s.record().Operation)
	s.chat(chatBody).checkError(t, 429)
}

// A method says with errors.ErrUnsupported that it is not there for a request, which is logged at
// Debug. That of a system call is a failure.
func TestAbilities_Unsupported(t *testing.T) {
	failed := fmt.Errorf("cache: %w", &fs.PathError{Op: "copy", Path: "/cache", Err: syscall.ENOTSUP})
	require.ErrorIs(t, failed, errors.ErrUnsupported)
	for name, test := range map[string]struct {
		err    error
		status int
		log    string
	}{
		"unsupported": {fmt.Errorf("no model has vectors: %w", errors.ErrUnsupported), 404, `"level":"DEBUG","msg":"not supported"`},
		"failed":      {failed, 500, `"level":"ERROR","msg":"request failed"`},
	} {
		for _, wrap := range []string{"with Unwrap", "route", "textfilter"} {
			t.Run(name+"/"+wrap, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &stubBackend{
						call:   func(context.Context) error { return test.err },
						models: func(context.Context) ([]llm.Model, error) { return nil, test.err },
						sizes:  func(context.Context, string) ([]string, error) { return nil, test.err },
					}
					for _, op := range testOperations {
						s := startPipeServer(t, config{backend: wrappers[wrap](t, b)})
						s.do("POST", op.path, op.body).checkError(t, test.status)
						assert.Contains(t, s.log.String(), test.log, op.path)
						assert.Contains(t, s.log.String(), test.err.Error(), op.path)
					}
				})
			})
		}
	}
}

// A stream of images that is not there becomes complete images, and a size that cannot be checked is
// any size.
func TestAbilities_UnsupportedHasAFallback(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
	}{
		"unsupported": {errors.ErrUnsupported, 200},
		"failed":      {syscall.ENOTSUP, 500},
	} {
		b := &stubBackend{
			sizes: func(context.Context, string) ([]string, error) { return nil, test.err },
			draw: func(_ context.Context, r *llm.ImageRequest) llm.ImageStream {
				r.Prompt = "changed"
				return func(yield func(*llm.ImageChunk, error) bool) { yield(nil, test.err) }
			},
			images: func(_ context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
				assert.Equal(t, "a cat", r.Prompt)
				return &llm.ImageResponse{Data: []llm.Image{{Data: []byte(pngData)}}}, nil
			},
		}
		s := startServer(t, config{backend: b})
		assert.Equal(t, test.status, s.do("POST", imagesPath, `{"model":"m","prompt":"a cat","size":"256x256"}`).StatusCode, name)
		assert.Equal(t, test.status, s.do("POST", imagesPath, `{"model":"m","prompt":"a cat","stream":true}`).StatusCode, name)
	}
}

// A wrapper of a host that changes images sees those of streams too, although it has no StreamImages
// and lets pass what it does not have.
func TestStreamImages_DoesNotPassAWrapperOfImages(t *testing.T) {
	called := make(calledMethods)
	generates := struct {
		passing
		llmhttp.ImageGenerator
	}{passing{noted(called)}, noted(called)}
	edits := struct {
		passing
		imageedit.Editor
	}{passing{noted(called)}, noted(called)}
	s := startServer(t, config{backend: generates})
	assert.Equal(t, 200, s.do("POST", imagesPath, `{"model":"m","prompt":"p","stream":true}`).StatusCode)
	s = startServer(t, config{backend: edits})
	assert.Equal(t, 200, s.do("POST", imageEditsPath, `{"model":"m","prompt":"p","stream":true,"image":"x"}`).StatusCode)
	assert.Contains(t, called, reflect.TypeFor[llmhttp.ImageGenerator]())
	assert.Contains(t, called, reflect.TypeFor[imageedit.Editor]())
	assert.NotContains(t, called, reflect.TypeFor[llmhttp.ImageStreamer]())
	assert.NotContains(t, called, reflect.TypeFor[imageedit.Streamer]())
}

// notOfBackends are the interfaces that the package looks for in other things than a Backend.
var notOfBackends = []string{"ConcurrencyLimiter", "Limiter", "QuotaEventStore", "ReplySaver", "Reserver", "UsageStore"}

// Each interface that the package looks for in a Backend has a row in abilities, and so has the one of
// each operation of another package.
func TestAbilities_HaveARow(t *testing.T) {
	var known []string
	paths := make(map[string]bool)
	for _, a := range abilities {
		paths[a.method] = true
		if a.of.PkgPath() == reflect.TypeFor[llmhttp.Backend]().PkgPath() {
			known = append(known, a.of.Name())
		}
	}
	found := append(interfacesLookedFor(t), "Backend")
	found = slices.DeleteFunc(found, func(name string) bool { return slices.Contains(notOfBackends, name) })
	slices.Sort(found)
	slices.Sort(known)
	assert.Equal(t, slices.Compact(found), known)
	for _, op := range testOperations { // all, as TestOperations_HaveARequest tests
		assert.True(t, paths[op.path], op.path)
	}
}

// The kit for guards has a Backend with each ability.
func TestAbilities_OfTheKit(t *testing.T) {
	llmhttptest.TestGuard(t, func(b llmhttp.Backend) llmhttp.Backend {
		for _, a := range abilities {
			assert.True(t, reflect.TypeOf(b).Implements(a.of), "add %s to the probe of llmhttptest, and a check", a.of)
		}
		return textfilter.New(b, redacting)
	}, filterSecret)
}

// interfacesLookedFor returns the exported interfaces of this package that it asserts, that are type
// arguments, as in As[Embedder], or whose methods it names, as in Embedder.Embed.
func interfacesLookedFor(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	interfaces := make(map[string]bool)
	var names []string
	use := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for n := range ast.Preorder(f) {
			switch n := n.(type) {
			case *ast.TypeSpec:
				_, interfaces[n.Name.Name] = n.Type.(*ast.InterfaceType)
			case *ast.IndexExpr:
				use(n.Index)
			case *ast.IndexListExpr:
				for _, index := range n.Indices {
					use(index)
				}
			case *ast.SelectorExpr:
				use(n.X)
			case *ast.TypeAssertExpr:
				use(n.Type)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !interfaces[name] })
}
