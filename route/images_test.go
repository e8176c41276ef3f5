package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/textfilter"
)

// A multimodal is a Backend for every endpoint, made of functions.
type multimodal struct {
	llmhttp.BackendFunc
	generate func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) // and for edits
	embed    func(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error)
	rerank   func(ctx context.Context, r *rerank.Request) (*rerank.Response, error)
	moderate func(ctx context.Context, r *moderation.Request) (*moderation.Response, error)
	sizes    func(model string) ([]string, error)
}

func (b *multimodal) GenerateImages(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
	return b.generate(ctx, r)
}

func (b *multimodal) EditImages(ctx context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
	return b.generate(ctx, &r.ImageRequest)
}

func (b *multimodal) Embed(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return b.embed(ctx, r)
}

func (b *multimodal) Rerank(ctx context.Context, r *rerank.Request) (*rerank.Response, error) {
	return b.rerank(ctx, r)
}

func (b *multimodal) Moderate(ctx context.Context, r *moderation.Request) (*moderation.Response, error) {
	return b.moderate(ctx, r)
}

func (b *multimodal) ImageSizes(_ context.Context, model string) ([]string, error) {
	return b.sizes(model)
}

// newMultimodal returns a Backend whose replies have its name, or that fails
// with err if that is not nil.
func newMultimodal(name string, err error) *multimodal {
	return &multimodal{
		BackendFunc: func(context.Context, *llm.ChatRequest) llm.ChatStream {
			if err != nil {
				return llm.Fail(err)
			}
			return llm.Reply(name)
		},
		generate: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
			if err != nil {
				return nil, err
			}
			return &llm.ImageResponse{Data: []llm.Image{{URL: name}}}, nil
		},
		embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			if err != nil {
				return nil, err
			}
			return &llm.EmbeddingResponse{Model: name}, nil
		},
		rerank: func(context.Context, *rerank.Request) (*rerank.Response, error) {
			if err != nil {
				return nil, err
			}
			return &rerank.Response{Model: name}, nil
		},
		moderate: func(context.Context, *moderation.Request) (*moderation.Response, error) {
			if err != nil {
				return nil, err
			}
			return &moderation.Response{Model: name}, nil
		},
		sizes: func(string) ([]string, error) { return nil, err },
	}
}

func TestOneShots_Fallback(t *testing.T) {
	nothing := &multimodal{
		generate: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) { return nil, nil },
		embed:    func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) { return nil, nil },
		rerank:   func(context.Context, *rerank.Request) (*rerank.Response, error) { return nil, nil },
		moderate: func(context.Context, *moderation.Request) (*moderation.Response, error) {
			return nil, nil
		},
	}
	slow := &multimodal{
		generate: func(ctx context.Context, _ *llm.ImageRequest) (*llm.ImageResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		embed: func(ctx context.Context, _ *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		rerank: func(ctx context.Context, _ *rerank.Request) (*rerank.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		moderate: func(ctx context.Context, _ *moderation.Request) (*moderation.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	mutating := &multimodal{
		generate: func(_ context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
			*r.N, r.Model = 0, "x"
			delete(r.Extra, "x")
			return nil, errDial
		},
		embed: func(_ context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
			*r.Dimensions, r.Model = 0, "x"
			delete(r.Extra, "x")
			return nil, errDial
		},
		rerank: func(_ context.Context, r *rerank.Request) (*rerank.Response, error) {
			r.Documents[0], r.Model = rerank.Document{}, "x"
			delete(r.Extra, "x")
			return nil, errDial
		},
		moderate: func(_ context.Context, r *moderation.Request) (*moderation.Response, error) {
			r.Input.Texts[0], r.Model = "b", "x"
			delete(r.Extra, "x")
			return nil, errDial
		},
	}
	for name, test := range map[string]struct {
		first llmhttp.Backend
		want  string // empty if the error is final
	}{
		"answers":              {newMultimodal("a", nil), "a"},
		"fails":                {newMultimodal("a", errDial), "b"},
		"429":                  {newMultimodal("a", llm.Errorf(429, "", "x")), "b"},
		"400":                  {newMultimodal("a", llm.Errorf(400, "", "x")), ""},
		"no reply":             {nothing, "b"},
		"hangs":                {slow, "b"},
		"serves chats only":    {newFake(say("a")), "b"},
		"returns ErrUnsupport": {unsupporting(), "b"},
		"unknown model":        {newMultimodal("a", llm.ModelNotFound("m")), "b"},
		"changes its request":  {mutating, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, three := 3, 3
				extra, unchanged := llm.Extra{"x": json.RawMessage(`1`)}, llm.Extra{"x": json.RawMessage(`1`)}
				second := newMultimodal("b", nil)
				generate, embed, rank := second.generate, second.embed, second.rerank
				documents, sameDocuments := []rerank.Document{{Text: "a"}}, []rerank.Document{{Text: "a"}}
				second.generate = func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
					assert.Equal(t, &llm.ImageRequest{Model: "m", N: &three, Extra: unchanged}, r)
					return generate(ctx, r)
				}
				second.embed = func(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
					assert.Equal(t, &llm.EmbeddingRequest{Model: "m", Dimensions: &three, Extra: unchanged}, r)
					return embed(ctx, r)
				}
				second.rerank = func(ctx context.Context, r *rerank.Request) (*rerank.Response, error) {
					assert.Equal(t, &rerank.Request{Model: "m", Documents: sameDocuments, Extra: unchanged}, r)
					return rank(ctx, r)
				}
				moderate := second.moderate
				second.moderate = func(ctx context.Context, r *moderation.Request) (*moderation.Response, error) {
					assert.Equal(t, &moderation.Request{Model: "m", Input: moderation.Input{Texts: []string{"a"}}, Extra: unchanged}, r)
					return moderate(ctx, r)
				}
				r := newInOrderRouter(t, nil, test.first, second)
				input := moderation.Input{Texts: []string{"a"}}
				moderated, moderationErr := r.Moderate(t.Context(), &moderation.Request{Model: "m", Input: input, Extra: extra})
				images, imagesErr := r.GenerateImages(t.Context(), &llm.ImageRequest{Model: "m", N: &n, Extra: extra})
				vectors, vectorsErr := r.Embed(t.Context(), &llm.EmbeddingRequest{Model: "m", Dimensions: &n, Extra: extra})
				ranking, rankingErr := r.Rerank(t.Context(), &rerank.Request{Model: "m", Documents: documents, Extra: extra})
				if test.want == "" {
					assert.Error(t, moderationErr)
					assert.Nil(t, moderated)
					assert.Error(t, rankingErr)
					assert.Nil(t, ranking)
					assert.Error(t, imagesErr)
					assert.Error(t, vectorsErr)
					assert.Nil(t, images)
					assert.Nil(t, vectors)
					return
				}
				require.NoError(t, imagesErr)
				require.NoError(t, vectorsErr)
				require.NoError(t, rankingErr)
				require.NoError(t, moderationErr)
				assert.Equal(t, test.want, moderated.Model)
				assert.Equal(t, test.want, ranking.Model)
				assert.Equal(t, test.want, images.Data[0].URL)
				assert.Equal(t, test.want, vectors.Model)
				for _, s := range r.Status() {
					assert.Zero(t, s.InFlight)
				}
			})
		})
	}
}

// A reply that arrives after the timeout of its try is used.
func TestGenerateImages_LateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMultimodal("a", nil)
		generate := b.generate
		b.generate = func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
			time.Sleep(3 * time.Second)
			return generate(ctx, r)
		}
		r := newInOrderRouter(t, &route.Options{TryTimeout: time.Second}, b)
		resp, err := r.GenerateImages(t.Context(), &llm.ImageRequest{Model: "m"})
		require.NoError(t, err)
		assert.Equal(t, "a", resp.Data[0].URL)
		assert.Zero(t, r.Status()[0].Failures)
	})
}

// unsupporting returns a Backend that has every method and supports chats only.
func unsupporting() llmhttp.Backend {
	return textfilter.New(newFake(say("a")), func(context.Context) textfilter.Filter { return textfilter.Filter{} })
}

// The error is ErrUnsupported if no target of any route supports an endpoint,
// and a 404 for the model if only the targets of its route do not.
func TestOneShots_Unsupported(t *testing.T) {
	chats := newFake(say("a"))
	requestAll := func(r *route.Router, model string) []error {
		_, err1 := r.GenerateImages(t.Context(), &llm.ImageRequest{Model: model})
		_, err2 := r.Embed(t.Context(), &llm.EmbeddingRequest{Model: model})
		_, err3 := r.Rerank(t.Context(), &rerank.Request{Model: model})
		_, err4 := r.Moderate(t.Context(), &moderation.Request{Model: model})
		_, err5 := r.ImageSizes(t.Context(), model)
		return []error{err1, err2, err3, err4, err5}
	}
	for _, err := range requestAll(newInOrderRouter(t, nil, chats, chats), "m") {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	}
	f := unsupporting()
	errs := requestAll(newInOrderRouter(t, nil, f, f), "m")
	assert.ErrorIs(t, errs[0], errors.ErrUnsupported)
	assert.ErrorIs(t, errs[1], errors.ErrUnsupported)
	assert.ErrorIs(t, errs[2], errors.ErrUnsupported)
	assert.ErrorIs(t, errs[3], errors.ErrUnsupported)
	assert.NoError(t, errs[4], "a filter may support images without a list of sizes")

	r := newRouter(t, nil, route.Route{Model: "m", Targets: targets(chats)}, route.Route{Model: "n", Targets: targets(newMultimodal("a", nil))})
	for _, err := range requestAll(r, "m") {
		assert.Equal(t, "model_not_found", requireStatus(t, err, 404).Code)
	}
}

func TestImageSizes(t *testing.T) {
	lists := func(sizes ...string) *multimodal {
		b := newMultimodal("a", nil)
		b.sizes = func(model string) ([]string, error) {
			if model != "m" {
				return nil, llm.ModelNotFound(model)
			}
			return slices.Clone(sizes), nil
		}
		return b
	}
	noSizer := struct {
		llmhttp.Backend
		llmhttp.ImageGenerator
	}{lists(), lists()}
	for name, test := range map[string]struct {
		targets []llmhttp.Backend
		want    []string
		err     bool
	}{
		"one target":        {[]llmhttp.Backend{lists("1x1", "2x2")}, []string{"1x1", "2x2"}, false},
		"common sizes":      {[]llmhttp.Backend{lists("3x3", "1x1", "2x2"), lists("2x2", "3x3")}, []string{"3x3", "2x2"}, false},
		"no common sizes":   {[]llmhttp.Backend{lists("1x1"), lists("2x2")}, []string{"1x1"}, false},
		"one allows all":    {[]llmhttp.Backend{lists(), lists("2x2")}, []string{"2x2"}, false},
		"not an ImageSizer": {[]llmhttp.Backend{noSizer}, nil, false},
		"one fails":         {[]llmhttp.Backend{newMultimodal("a", errDial), lists("2x2")}, []string{"2x2"}, false},
		"all fail":          {[]llmhttp.Backend{newMultimodal("a", errDial)}, nil, false},
		"unknown to one":    {[]llmhttp.Backend{newMultimodal("a", llm.ModelNotFound("m")), lists("2x2")}, []string{"2x2"}, false},
		"unknown to all":    {[]llmhttp.Backend{newMultimodal("a", llm.ModelNotFound("m"))}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newInOrderRouter(t, nil, test.targets...).ImageSizes(t.Context(), "m")
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.err, err != nil)
		})
	}

	t.Run("open breaker", func(t *testing.T) {
		bad := newMultimodal("a", errDial)
		bad.sizes = func(string) ([]string, error) {
			t.Error("a target with an open breaker was called")
			return nil, nil
		}
		r := newInOrderRouter(t, &route.Options{Failures: 1, Rounds: 1}, bad, newMultimodal("b", nil))
		_, err := r.GenerateImages(t.Context(), &llm.ImageRequest{Model: "m"})
		require.NoError(t, err)
		require.Equal(t, route.StateOpen, r.Status()[0].State)
		_, err = r.ImageSizes(t.Context(), "m")
		assert.NoError(t, err)
		assert.Equal(t, int64(1), r.Status()[0].Tries, "ImageSizes is not a try")
	})
	t.Run("client leaves", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		b := newMultimodal("a", nil)
		b.sizes = func(string) ([]string, error) { cancel(gone); return nil, nil }
		_, err := newInOrderRouter(t, nil, b).ImageSizes(ctx, "m")
		assert.Equal(t, gone, err)
	})
}

// An editor is a Backend that edits images and generates none.
type editor struct {
	llmhttp.Backend
	edit func(r *imageedit.Request) (*llm.ImageResponse, error)
}

func (b *editor) EditImages(_ context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
	return b.edit(r)
}

func (b *editor) ImageSizes(context.Context, string) ([]string, error) {
	return []string{"1x1"}, nil
}

// Another target gets the request as it was, and reads the files from their start.
func TestEditImages_Fallback(t *testing.T) {
	read := func(f *llm.File) string {
		content, err := io.ReadAll(f.Open())
		assert.NoError(t, err)
		return string(content)
	}
	first := &editor{newFake(), func(r *imageedit.Request) (*llm.ImageResponse, error) {
		assert.Equal(t, "content", read(r.Images[0]))
		r.Images[0].Name, r.Images, r.Mask.Name = "changed", nil, "changed"
		r.Extra["x"][0] = '2'
		return nil, errDial
	}}
	second := &editor{newFake(), func(r *imageedit.Request) (*llm.ImageResponse, error) {
		assert.Equal(t, "second", r.Model)
		assert.Equal(t, "a.png content, m.png mask", r.Images[0].Name+" "+read(r.Images[0])+", "+r.Mask.Name+" "+read(r.Mask))
		assert.Equal(t, "1", string(r.Extra["x"]))
		return &llm.ImageResponse{Data: []llm.Image{{URL: "b"}}}, nil
	}}
	r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.InOrder, Targets: []route.Target{
		{Name: "chats", Backend: newFake(say("a"))}, {Name: "first", Backend: first, Model: "first"}, {Name: "second", Backend: second, Model: "second"},
	}}, route.Route{Model: "other", Targets: targets(newMultimodal("c", nil))})
	file := func(name, content string) *llm.File {
		return &llm.File{Name: name, Size: int64(len(content)), Content: strings.NewReader(content)}
	}
	resp, err := r.EditImages(t.Context(), &imageedit.Request{
		ImageRequest: llm.ImageRequest{Model: "m", Extra: llm.Extra{"x": json.RawMessage(`1`)}},
		Images:       []*llm.File{file("a.png", "content")}, Mask: file("m.png", "mask"),
	})
	require.NoError(t, err)
	assert.Equal(t, "b", resp.Data[0].URL)
	sizes, err := r.ImageSizes(t.Context(), "m")
	require.NoError(t, err)
	assert.Equal(t, []string{"1x1"}, sizes, "of targets that only edit")
}

// A drawer is a Backend that streams images and edits.
type drawer struct {
	*multimodal
	draw func(r *llm.ImageRequest, files []*llm.File, yield func(*llm.ImageChunk, error) bool)
}

func (b *drawer) StreamImages(_ context.Context, r *llm.ImageRequest) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) { b.draw(r, nil, yield) }
}

func (b *drawer) StreamImageEdits(_ context.Context, r *imageedit.Request) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) { b.draw(&r.ImageRequest, r.Images, yield) }
}

// Another target is tried until the first image, which may be one that is not complete.
func TestStreamImages_Fallback(t *testing.T) {
	for _, images := range [][]*llm.File{nil, {{Name: "a.png", Size: 1, Content: strings.NewReader("x")}}} {
		for name, test := range map[string]struct {
			first []*llm.ImageChunk // before the target fails
			want  string            // the URLs of the images; empty if the request fails
		}{
			"before a chunk":    {nil, "second"},
			"before an image":   {[]*llm.ImageChunk{{Usage: &llm.Usage{PromptTokens: 1}}}, "second"},
			"after a preview":   {[]*llm.ImageChunk{{Image: &llm.Image{URL: "p"}, Partial: true}}, ""},
			"after an image":    {[]*llm.ImageChunk{{Image: &llm.Image{URL: "a"}}}, ""},
			"without streaming": {nil, "whole"},
		} {
			t.Run(name, func(t *testing.T) {
				first := &drawer{newMultimodal("1", nil), func(r *llm.ImageRequest, _ []*llm.File, yield func(*llm.ImageChunk, error) bool) {
					r.Prompt = "changed"
					for _, c := range test.first {
						if !yield(c, nil) {
							return
						}
					}
					yield(nil, errDial)
				}}
				var second llmhttp.Backend = &drawer{newMultimodal("2", nil), func(r *llm.ImageRequest, files []*llm.File, yield func(*llm.ImageChunk, error) bool) {
					assert.Equal(t, "p", r.Prompt)
					assert.Equal(t, images, files)
					yield(&llm.ImageChunk{Image: &llm.Image{URL: "second"}}, nil)
				}}
				if test.want == "whole" {
					second = newMultimodal("whole", nil)
				}
				r := newInOrderRouter(t, nil, newFake(say("a")), first, second)
				var got []string
				var failed error
				asked := llm.ImageRequest{Model: "m", Prompt: "p"}
				stream := r.StreamImages(t.Context(), &asked)
				if images != nil {
					stream = r.StreamImageEdits(t.Context(), &imageedit.Request{ImageRequest: asked, Images: images})
				}
				stream(func(c *llm.ImageChunk, err error) bool {
					if failed = err; c != nil && c.Image != nil {
						got = append(got, c.Image.URL)
					}
					return err == nil
				})
				if test.want == "" {
					require.ErrorIs(t, failed, errDial)
					return
				}
				require.NoError(t, failed)
				assert.Equal(t, []string{test.want}, got)
			})
		}
	}
}
