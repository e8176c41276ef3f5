package imageedit_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

const path = "/v1/images/edits"

// pngData has the signature of a PNG, which the detection of media types looks for.
const pngData = "\x89PNG\r\n\x1a\nrest"

// A backend is a Backend that edits images.
type backend func(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error)

func (backend) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (b backend) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	return b(ctx, req)
}

// A sized Backend allows certain sizes.
type sized struct {
	backend
	sizes []string
}

func (b sized) ImageSizes(context.Context, string) ([]string, error) { return b.sizes, nil }

// drawing returns a Backend that returns as many images as are asked for.
func drawing(usage *llm.Usage) backend {
	return func(_ context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
		resp := &llm.ImageResponse{Created: 1, Usage: usage}
		for range req.Count() {
			resp.Data = append(resp.Data, llm.Image{Data: []byte(pngData)})
		}
		return resp, nil
	}
}

// newServer returns a Server with the route of package imageedit, whose key may do everything.
func newServer(t testing.TB, b llmhttp.Backend, files *form.Store) *endpointtest.Server {
	return endpointtest.New(t, b, llmhttp.Key{}, llmhttp.Options{Routes: imageedit.Routes(&imageedit.Options{Files: files})})
}

// dataURL returns a data: URL of a PNG.
func dataURL(content string) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(content))
}

// asJSON returns the body of a request with members.
func asJSON(members string) string { return `{"model":"m","prompt":"p",` + members + `}` }

// image is the member of a JSON body with an image.
const image = `"images":[{"image_url":"data:image/png;base64,eA=="}]`

// What the Backend gets of a form and of JSON, in memory and in temporary files.
func TestRoutes_Request(t *testing.T) {
	large := strings.Repeat("0123456789", 20_000)
	const rest = `"model":"m","prompt":"a hat","n":2,"size":"auto","quality":"low","response_format":"url","background":"opaque"`
	images := fmt.Sprintf(`"images":[{"image_url":%q},{"image_url":%q}],"mask":{"image_url":%q}`, dataURL(large), dataURL("b"), dataURL("m"))
	for name, test := range map[string]struct {
		form, json string
		names      [3]string // of the files
		extra      llm.Extra
	}{
		"images first": {
			`{"image":["` + large + `","b"],"mask":"m",` + rest + `,"tags[]":["x"]}`, "",
			[3]string{"photo.png", "photo.png", "mask.png"}, llm.Extra{"tags[]": json.RawMessage(`["x"]`)},
		},
		"images last": {
			`{` + rest + `,"mask":"m","user":"","image[]":["` + large + `","b"]}`, "",
			[3]string{"photo.png", "photo.png", "mask.png"}, llm.Extra{"user": json.RawMessage(`""`)},
		},
		"JSON": {"", `{` + rest + `,"seed":5,` + images + `}`, [3]string{}, llm.Extra{"seed": json.RawMessage(`5`)}},
	} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(name, func(t *testing.T) {
				var open io.Reader
				b := backend(func(ctx context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
					require.Len(t, r.Images, 2)
					for i, want := range []string{large, "b", "m"} {
						file := r.Files()[i]
						content, err := io.ReadAll(file.Open())
						assert.NoError(t, err)
						assert.Equal(t, want, string(content))
						assert.Equal(t, test.names[i], file.Name)
						assert.Equal(t, "png", file.Extension())
					}
					open = r.Mask.Open()
					got := r.ImageRequest
					got.N = nil
					extra := llm.Extra{"background": json.RawMessage(`"opaque"`)}
					for k, v := range test.extra {
						extra[k] = v
					}
					assert.Equal(t, llm.ImageRequest{Model: "m", Prompt: "a hat", Size: "auto", Quality: "low", ResponseFormat: "url", Extra: extra}, got)
					assert.Equal(t, imageedit.Operation, llmhttp.RequestInfoFrom(ctx).Operation)
					checkEmpty(t, dir) // files have no name
					return &llm.ImageResponse{Data: []llm.Image{{Data: []byte(pngData)}, {URL: "https://example.com/b.png"}}}, nil
				})
				s := newServer(t, b, &form.Store{Dir: dir})
				before := time.Now().Unix()
				w := s.Post(path, test.json)
				if test.form != "" {
					w = s.Post(path, endpointtest.Form(t, test.form))
				}
				assert.Equal(t, 200, w.Code, w.Body)
				var reply struct {
					Created int64
					Data    json.RawMessage
				}
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
				assert.Equal(t, `[{"url":"`+dataURL(pngData)+`"},{"url":"https://example.com/b.png"}]`, string(reply.Data))
				assert.GreaterOrEqual(t, reply.Created, before)
				_, err := open.Read(make([]byte, 1))
				require.ErrorIs(t, err, fs.ErrClosed, "the request has ended")
				record := s.Records[len(s.Records)-1]
				assert.Equal(t, imageedit.Operation, record.Operation)
				assert.Equal(t, llmhttp.Units{Images: 2}, record.Units)
				assert.Equal(t, [2]string{"auto", "low"}, [2]string{record.ImageSize, record.ImageQuality})
			})
		}
	}
}

// checkEmpty checks that there is nothing in a directory, if there is one.
func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if dir != "" {
		left, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Empty(t, left)
	}
}

// The format does not fill in a size, because edits have that of the image, and replies have data,
// because clients such as the AI SDK read nothing else.
func TestRoutes_Defaults(t *testing.T) {
	s := newServer(t, backend(func(_ context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
		assert.Empty(t, r.Size)
		assert.Equal(t, 1, r.Count())
		return &llm.ImageResponse{Created: 1, Data: []llm.Image{{Data: []byte("x")}}, Usage: &llm.Usage{PromptTokens: 5, CompletionTokens: 7}}, nil
	}), nil)
	w := s.Post(path, endpointtest.Form(t, `{"image":"PNG","prompt":"a cat","model":"m"}`))
	assert.Equal(t, `{"created":1,"data":[{"b64_json":"eA=="}],"usage":{"input_tokens":5,"output_tokens":7,"total_tokens":12}}`, w.Body.String())
	assert.Equal(t, llmhttp.Units{PromptTokens: 5, CompletionTokens: 7, Images: 1}, s.Records[0].Units)
}

// A reply without a time has that of the record, as the reply to a generation has.
func TestRoutes_Created(t *testing.T) {
	s := endpointtest.New(t, backend(func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
		return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("x")}}}, nil
	}), llmhttp.Key{}, llmhttp.Options{Routes: imageedit.Routes(nil), Now: func() time.Time { return time.Unix(1760092079, 0) }})
	w := s.Post(path, endpointtest.Form(t, `{"image":"PNG","prompt":"a cat","model":"m"}`))
	assert.Contains(t, w.Body.String(), `{"created":1760092079,`)
}

func TestRoutes_Mistakes(t *testing.T) {
	const (
		missing   = "missing_required_parameter"
		invalid   = "invalid_value"
		wrongType = "invalid_type"
		tooLong   = "array_above_max_length"
		unknown   = "unknown_parameter"
		duplicate = "duplicate_parameter"
	)
	s := newServer(t, backend(func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) { panic("called") }), nil)
	many := func(element string) string { return strings.TrimSuffix(strings.Repeat(element+",", 17), ",") }
	check := func(body string, e endpointtest.Error, code, param string) {
		assert.Equal(t, code, e.Code, body)
		assert.Equal(t, param, e.Param, body)
	}
	for _, test := range []struct{ body, code, param string }{
		{`{"prompt":"p","model":"m"}`, missing, "image"},
		{`{"prompt":"p","image":"x"}`, missing, "model"},
		{`{"model":"m","image":"x"}`, missing, "prompt"},
		{`{"prompt":"p","model":"m","image":""}`, invalid, "image"},
		{`{"prompt":"p","model":"m","image[]":["a",""]}`, invalid, "image[1]"},
		{`{"prompt":"p","model":"m","image":[` + many(`"a"`) + `]}`, tooLong, "image"},
		{`{"prompt":"p","model":"m","image":"a","mask":""}`, invalid, "mask"},
		{`{"prompt":"p","model":"m","image":"a","mask":["a","b"]}`, duplicate, "mask"},
		{`{"prompt":"p","model":"m","image":"a","Mask":"a"}`, unknown, "Mask"},
		{`{"prompt":["p","q"],"model":"m","image":"a"}`, duplicate, "prompt"},
		{`{"prompt":"p","model":"m","image":"a","n":"1.5"}`, invalid, "n"},
		{`{"prompt":"p","model":"m","image":"a","n":11}`, "integer_above_max_value", "n"},
		{`{"prompt":"p","model":"m","image":"a","n":0}`, "integer_below_min_value", "n"},
		{`{"prompt":"p","model":"m","n":0}`, "integer_below_min_value", "n"},
		{`{"prompt":"p","model":"m","image":"a","partial_images":4}`, "integer_above_max_value", "partial_images"},
		{`{"prompt":"p","model":"m","image":"a","stream":"yes"}`, invalid, "stream"},
		{`{"prompt":"p","model":"m","image":"a","size":"big"}`, invalid, "size"},
		{`{"prompt":"p","model":"m","image":"a","quality":"ultra"}`, invalid, "quality"},
		{`{"prompt":"p","model":"m","image":"a","response_format":"png"}`, invalid, "response_format"},
		{`{"prompt":"p","model":"m","image":"a","api_base":"http://x"}`, unknown, "api_base"},
	} {
		check(test.body, s.Refused(s.Post(path, endpointtest.Form(t, test.body)), 400), test.code, test.param)
	}
	for _, test := range []struct{ members, code, param string }{
		{`"images":[]`, missing, "images"},
		{`"images":[],"size":"big"`, invalid, "size"},
		{`"image":"x"`, unknown, "image"},
		{`"image":"x",` + image, unknown, "image"},
		{`"image[]":["x"],` + image, unknown, "image[]"},
		{`"mask[]":["x"],` + image, unknown, "mask[]"},
		{`"model[]":["x"],` + image, unknown, "model[]"},
		{`"images":"x"`, wrongType, "images"},
		{`"images":["x"]`, wrongType, "images[0]"},
		{`"images":[{}]`, missing, "images[0].image_url"},
		{`"images":[{"file_id":"file_1"}]`, invalid, "images[0].file_id"},
		{`"images":[{"image_url":"https://example.com/a.png"}]`, invalid, "images[0].image_url"},
		{`"images":[{"image_url":"data:image/png\r\nContent-Disposition: form-data; name=\"model\";base64,YmlnLW1vZGVs"}]`, invalid, "images[0].image_url"},
		{`"images":[{"image_url":"data:image/png\nContent-Disposition: form-data; name=\"model\";base64,YmlnLW1vZGVs"}]`, invalid, "images[0].image_url"},
		{`"images":[{"image_url":"data:image/png;\r\nname=model;base64,YmlnLW1vZGVs"}]`, invalid, "images[0].image_url"},
		{image + `,"mask":{"image_url":"data:image/png\n;base64,eA=="}`, invalid, "mask.image_url"},
		{`"images":[{"image_url":"data:image/png,x"}]`, invalid, "images[0].image_url"},
		{`"images":[{"image_url":"data:image/png;base64,eA=="},{"image_url":"data:image/png;base64,*"}]`, invalid, "images[1].image_url"},
		{`"images":[{"image_url":"data:image/png;base64,eHh4e"}]`, invalid, "images[0].image_url"},
		{`"images":[{"image_url":"data:image/png;base64,"}]`, invalid, "images[0].image_url"},
		{image + `,"mask":{"image_url":"x"}`, invalid, "mask.image_url"},
		{`"images":[` + many(`{"image_url":"x"}`) + `]`, tooLong, "images"},
		{`"n":"1","images":[]`, wrongType, "n"},
		{`"lora":[],` + image, unknown, "lora"},
	} {
		check(test.members, s.PostRefused(path, asJSON(test.members), 400), test.code, test.param)
	}
	assert.Empty(t, s.Records)
	assert.Equal(t, "unsupported_media_type", s.Refused(s.PostAs("text/plain", path, " x"), 415).Code)
}

// The bounds of files hold for forms and for JSON, and no file remains.
func TestRoutes_FilesAreBounded(t *testing.T) {
	called := 0
	b := backend(func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
		called++
		return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("x")}}}, nil
	})
	key := llmhttp.Key{Models: []string{"good"}, Limits: llmhttp.Limits{Tokens: llmhttp.Rate{N: 200, Per: time.Hour}}}
	for _, dir := range []string{"", t.TempDir()} {
		files := &form.Store{MaxFiles: 100_000, Dir: dir}
		s := endpointtest.New(t, b, key, llmhttp.Options{Routes: imageedit.Routes(&imageedit.Options{Files: files})})
		for kind, send := range map[string]func(model string, a, b, status int) endpointtest.Error{
			"form": func(model string, a, b, status int) endpointtest.Error {
				body := `{"image":["` + strings.Repeat("a", a) + `","` + strings.Repeat("b", b) + `"],"model":"` + model + `","prompt":"p"}`
				return s.Refused(s.Post(path, endpointtest.Form(t, body)), status)
			},
			"JSON": func(model string, a, b, status int) endpointtest.Error {
				return s.PostRefused(path, fmt.Sprintf(`{"model":%q,"prompt":"p","images":[{"image_url":%q},{"image_url":%q}]}`,
					model, dataURL(strings.Repeat("a", a)), dataURL(strings.Repeat("b", b))), status)
			},
		} {
			t.Run(kind, func(t *testing.T) {
				send("bad", 10, 10, 404)
				send("good", 50_000, 50_000, 429)
				assert.Equal(t, "request_too_large", send("good", 50_000, 50_001, 413).Code)
				assert.Zero(t, called)
				assert.Empty(t, s.Records)
			})
		}
		if checkEmpty(t, dir); dir != "" {
			require.NoError(t, os.Remove(dir))
			e := s.PostRefused(path, `{"model":"good","prompt":"p",`+image+`}`, 500)
			assert.Equal(t, "The server had an error while processing your request. Sorry about that!", e.Message)
		}
	}
}

// Sizes that the client leaves to the Backend are not checked against those of a model.
func TestRoutes_SizesOfAModel(t *testing.T) {
	s := newServer(t, sized{drawing(nil), []string{"256x256"}}, nil)
	for _, stream := range []string{`,"stream":true`, ""} {
		edit := func(size string) string { return asJSON(image + `,"size":"` + size + `"` + stream) }
		for _, size := range []string{"", "auto", "256x256"} {
			assert.Equal(t, 200, s.Post(path, edit(size)).Code, size)
		}
		n := len(s.Records)
		assert.Equal(t, "size", s.PostRefused(path, edit("1024x1024"), 400).Param)
		for _, record := range s.Records[n:] {
			assert.Zero(t, record.Units)
		}
	}
}

// The URL of an image is that of the host.
func TestRoutes_ImageURL(t *testing.T) {
	for want, err := range map[string]error{"https://put.example/x": nil, "": errors.New("full")} {
		s := endpointtest.New(t, drawing(nil), llmhttp.Key{}, llmhttp.Options{
			Routes: imageedit.Routes(nil),
			ImageURL: func(_ context.Context, data []byte, mediaType string) (string, error) {
				assert.Equal(t, pngData, string(data))
				assert.Equal(t, "image/png", mediaType)
				return want, err
			},
		})
		body := asJSON(image + `,"n":2,"response_format":"url"`)
		if err != nil {
			s.PostRefused(path, body, 500)
			continue
		}
		assert.Equal(t, `{"created":1,"data":[{"url":"https://put.example/x"},{"url":"https://put.example/x"}]}`, s.Post(path, body).Body.String())
	}
}

// A Handler without the route does not edit, and neither does a Backend without the method. Options may be
// nil, and what is in them too.
func TestRoutes(t *testing.T) {
	for _, o := range []*imageedit.Options{nil, {}, {Files: new(form.Store)}} {
		routes := func() []llmhttp.Route { return imageedit.Routes(o) }
		endpointtest.CheckMounted(t, "imageedit", routes, drawing(nil), asJSON(image))
	}
}

// All routes of one Store share its MaxTotal, which a request holds until it has ended.
func TestOptions_FilesAreShared(t *testing.T) {
	files := &form.Store{MaxTotal: 64 << 10}
	var s *endpointtest.Server
	inner := 0
	s = newServer(t, backend(func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) {
		if inner == 0 {
			other := newServer(t, drawing(nil), files)
			inner = other.Post(path, asJSON(image)).Code
		}
		return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("x")}}}, nil
	}), files)
	assert.Equal(t, 200, s.Post(path, asJSON(image)).Code)
	assert.Equal(t, 503, inner)
	assert.Equal(t, 200, s.Post(path, asJSON(image)).Code, "the file is given up")
}
