package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// A painter is a Backend that draws and embeds as it is told to.
type painter struct {
	llmhttp.BackendFunc
	draw  func(ctx context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error)
	embed func(ctx context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error)
	sizes func(model string) ([]string, error)
}

func (p *painter) GenerateImages(ctx context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	return p.draw(ctx, r)
}

func (p *painter) Embed(ctx context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	return p.embed(ctx, r)
}

func (p *painter) ImageSizes(_ context.Context, model string) ([]string, error) {
	if p.sizes == nil {
		return nil, nil
	}
	return p.sizes(model)
}

// painterOf returns a painter whose every answer is of err, or has its name.
func painterOf(name string, err error) *painter {
	return &painter{
		draw: func(_ context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			if err != nil {
				return nil, err
			}
			return &llmhttp.ImageResponse{Data: []llmhttp.Image{{URL: name}}}, nil
		},
		embed: func(_ context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			if err != nil {
				return nil, err
			}
			return &llmhttp.EmbeddingResponse{Model: name}, nil
		},
	}
}

func TestOtherFallback(t *testing.T) {
	nothing := &painter{
		draw: func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) { return nil, nil },
		embed: func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			return nil, nil
		},
	}
	slow := &painter{
		draw: func(ctx context.Context, _ *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		embed: func(ctx context.Context, _ *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	vandal := &painter{
		draw: func(_ context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			*r.N, r.Model = 0, "x"
			delete(r.Extra, "x")
			return nil, errBoom
		},
		embed: func(_ context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			*r.Dimensions, r.Model = 0, "x"
			delete(r.Extra, "x")
			return nil, errBoom
		},
	}
	for name, test := range map[string]struct {
		first llmhttp.Backend
		want  string
	}{
		"works":           {painterOf("a", nil), "a"},
		"500":             {painterOf("a", errBoom), "b"},
		"429":             {painterOf("a", llmhttp.Errorf(429, "", "x")), "b"},
		"400":             {painterOf("a", llmhttp.Errorf(400, "", "x")), ""},
		"no response":     {nothing, "b"},
		"hangs":           {slow, "b"},
		"only chats":      {steps(says("a")), "b"},
		"only claims to":  {llmhttp.Forwarder{Backend: steps(says("a"))}, "b"},
		"does not know":   {painterOf("a", llmhttp.ModelNotFound("m")), "b"},
		"changes its own": {vandal, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, three := 3, 3
				extra := llmhttp.Extra{"x": json.RawMessage(`1`)}
				whole := llmhttp.Extra{"x": json.RawMessage(`1`)}
				second := painterOf("b", nil)
				draw, embed := second.draw, second.embed
				second.draw = func(ctx context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
					assert.Equal(t, &llmhttp.ImageRequest{Model: "m", N: &three, Extra: whole}, r)
					return draw(ctx, r)
				}
				second.embed = func(ctx context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
					assert.Equal(t, &llmhttp.EmbeddingRequest{Model: "m", Dimensions: &three, Extra: whole}, r)
					return embed(ctx, r)
				}
				r := inOrder(t, nil, test.first, second)
				images, err := r.GenerateImages(t.Context(), &llmhttp.ImageRequest{Model: "m", N: &n, Extra: extra})
				vectors, err2 := r.Embed(t.Context(), &llmhttp.EmbeddingRequest{Model: "m", Dimensions: &n, Extra: extra})
				if test.want == "" {
					assert.Error(t, err)
					assert.Error(t, err2)
					assert.Nil(t, images)
					assert.Nil(t, vectors)
					return
				}
				require.NoError(t, err)
				require.NoError(t, err2)
				assert.Equal(t, test.want, images.Data[0].URL)
				assert.Equal(t, test.want, vectors.Model)
				for _, s := range r.Status() {
					assert.Zero(t, s.InFlight)
				}
			})
		})
	}
}

// An image that comes when its time is over is an image all the same.
func TestLateImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := painterOf("a", nil)
		draw := p.draw
		p.draw = func(ctx context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			time.Sleep(3 * time.Second)
			return draw(ctx, r)
		}
		r := inOrder(t, &route.Options{TryTimeout: time.Second}, p)
		resp, err := r.GenerateImages(t.Context(), &llmhttp.ImageRequest{Model: "m"})
		require.NoError(t, err)
		assert.Equal(t, "a", resp.Data[0].URL)
		assert.Zero(t, r.Status()[0].Failures)
	})
}

// What nobody can do does not exist, and neither does a model that cannot.
func TestUnsupported(t *testing.T) {
	chats := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Reply("a") })
	ask := func(r *route.Router, model string) (errs []error) {
		_, err1 := r.GenerateImages(t.Context(), &llmhttp.ImageRequest{Model: model})
		_, err2 := r.ImageSizes(t.Context(), model)
		_, err3 := r.Embed(t.Context(), &llmhttp.EmbeddingRequest{Model: model})
		return []error{err1, err2, err3}
	}
	for name, b := range map[string]llmhttp.Backend{"chats": chats, "forwards": llmhttp.Forwarder{Backend: chats}} {
		for i, err := range ask(inOrder(t, nil, b, b), "m") {
			if name == "forwards" && i == 1 {
				assert.NoError(t, err, "it tells no sizes")
				continue
			}
			assert.ErrorIs(t, err, errors.ErrUnsupported, name)
		}
	}
	r := newRouter(t, nil, route.Route{Model: "m", Targets: targets(chats)}, route.Route{Model: "n", Targets: targets(painterOf("a", nil))})
	for _, err := range ask(r, "m") {
		var e *llmhttp.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 404, e.Status)
		assert.Equal(t, "model_not_found", e.Code)
	}
}

func TestImageSizes(t *testing.T) {
	tells := func(sizes ...string) *painter {
		p := painterOf("a", nil)
		p.sizes = func(model string) ([]string, error) {
			if model != "m" {
				return nil, llmhttp.ModelNotFound(model)
			}
			return slices.Clone(sizes), nil
		}
		return p
	}
	failing := func(err error) *painter {
		p := painterOf("a", nil)
		p.sizes = func(string) ([]string, error) { return nil, err }
		return p
	}
	silent := struct {
		llmhttp.Backend
		llmhttp.ImageGenerator
	}{tells(), tells()}
	for name, test := range map[string]struct {
		targets []llmhttp.Backend
		want    []string
		err     bool
	}{
		"one":            {[]llmhttp.Backend{tells("1x1", "2x2")}, []string{"1x1", "2x2"}, false},
		"in common":      {[]llmhttp.Backend{tells("3x3", "1x1", "2x2"), tells("2x2", "3x3")}, []string{"3x3", "2x2"}, false},
		"none in common": {[]llmhttp.Backend{tells("1x1"), tells("2x2")}, []string{"1x1"}, false},
		"any":            {[]llmhttp.Backend{tells(), tells("2x2")}, []string{"2x2"}, false},
		"not told":       {[]llmhttp.Backend{silent}, nil, false},
		"one fails":      {[]llmhttp.Backend{failing(errBoom), tells("2x2")}, []string{"2x2"}, false},
		"all fail":       {[]llmhttp.Backend{failing(errBoom)}, nil, false},
		"one unknown":    {[]llmhttp.Backend{failing(llmhttp.ModelNotFound("m")), tells("2x2")}, []string{"2x2"}, false},
		"all unknown":    {[]llmhttp.Backend{failing(llmhttp.ModelNotFound("m"))}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inOrder(t, nil, test.targets...).ImageSizes(t.Context(), "m")
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.err, err != nil)
		})
	}

	bad := painterOf("a", errBoom)
	bad.sizes = func(string) ([]string, error) { t.Error("a target that is left alone was asked"); return nil, nil }
	r := inOrder(t, &route.Options{Failures: 1, Rounds: 1}, bad)
	_, err := r.GenerateImages(t.Context(), &llmhttp.ImageRequest{Model: "m"})
	require.Error(t, err)
	sizes, err := r.ImageSizes(t.Context(), "m")
	assert.NoError(t, err, "whether it can draw is for GenerateImages to say")
	assert.Empty(t, sizes)
	assert.Equal(t, int64(1), r.Status()[0].Tries, "it is no try")
}

// Every endpoint of a Handler works through a Router.
func TestExchange(t *testing.T) {
	var got []*llmhttp.RequestSummary
	observe := func(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
		return ctx, func(e *llmhttp.RequestSummary) { got = append(got, e) }
	}
	r := newRouter(t, &route.Options{Failures: -1}, route.Route{Model: "*", Strategy: route.InOrder,
		Targets: []route.Target{{Name: "down", Backend: painterWithChat(errBoom)}, {Name: "up", Backend: memory.Echo()}}})
	h := llmhttp.NewHandler(r, llmhttp.AllowAll("acme"), &llmhttp.Options{Observe: observe})
	for _, test := range []struct {
		path, body string
	}{
		{"/v1/chat/completions", `{"model":"demo-chat","messages":[{"role":"user","content":"x"}]}`},
		{"/v1/chat/completions", `{"model":"demo-chat","messages":[{"role":"user","content":"x"}],"stream":true}`},
		{"/v1/images/generations", `{"model":"demo-image-small","prompt":"x","size":"256x256"}`},
		{"/v1/embeddings", `{"model":"demo-embed","input":"x"}`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", test.path, strings.NewReader(test.body)))
		require.Equal(t, 200, w.Code, w.Body)
		e := got[len(got)-1]
		assert.Equal(t, "up", e.Target)
		assert.Equal(t, 2, e.Tries)
	}
	chat(h, "none")
	e := got[len(got)-1]
	assert.Equal(t, 500, e.Status, "down's failure tells more than up's 404")
	assert.Equal(t, "down", e.Target)
	assert.Equal(t, 3, e.Tries)
}

// painterWithChat returns a Backend that fails whatever it is asked.
func painterWithChat(err error) llmhttp.Backend {
	p := painterOf("", err)
	p.BackendFunc = func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Fail(err) }
	return p
}

// What the system says of a target behind an upstream's Backend is told.
func TestLastError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	b, err := upstream.New("http://"+l.Addr().String()+"/v1", nil)
	require.NoError(t, err)
	r := inOrder(t, nil, b)
	_, err = say(t.Context(), r)
	require.Error(t, err)
	assert.Equal(t, "502 connection refused", r.Status()[0].LastError)
}
