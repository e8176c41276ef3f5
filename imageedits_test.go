package llmhttp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	"github.com/llmhttp/llmhttp/llm"
)

// editing returns a Backend with another EditImages.
func editing(f func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error)) *stubBackend {
	return &stubBackend{edit: f}
}

// dataURL returns a data: URL of a PNG.
func dataURL(content string) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(content))
}

// What the Backend gets of a form and of JSON, in memory and in temporary files. A body that does
// not begin with a brace is sent as it is, as JSON.
func TestImageEdits_Request(t *testing.T) {
	large := strings.Repeat("0123456789", 20_000)
	const rest = `"model":"m","prompt":"a hat","n":2,"size":"auto","quality":"low","response_format":"url","background":"opaque"`
	images := fmt.Sprintf(`"images":[{"image_url":%q},{"image_url":%q}],"mask":{"image_url":%q}`, dataURL(large), dataURL("b"), dataURL("m"))
	for name, test := range map[string]struct {
		body  string
		names [3]string // of the files
		extra llm.Extra
	}{
		"images first": {`{"image":["` + large + `","b"],"mask":"m",` + rest + `,"tags[]":["x"]}`, [3]string{"photo.png", "photo.png", "mask.png"}, llm.Extra{"tags[]": json.RawMessage(`["x"]`)}},
		"images last":  {`{` + rest + `,"mask":"m","user":"","image[]":["` + large + `","b"]}`, [3]string{"photo.png", "photo.png", "mask.png"}, llm.Extra{"user": json.RawMessage(`""`)}},
		"JSON":         {` {` + rest + `,"seed":5,` + images + `}`, [3]string{}, llm.Extra{"seed": json.RawMessage(`5`)}},
	} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(name, func(t *testing.T) {
				var open io.Reader
				b := editing(func(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
					require.Len(t, r.Images, 2)
					for i, want := range []string{large, "b", "m"} {
						file := append(r.Images, r.Mask)[i]
						content, err := io.ReadAll(file.Open())
						assert.NoError(t, err)
						assert.Equal(t, want, string(content))
						assert.Equal(t, test.names[i], file.Name)
						assert.Equal(t, "png", file.Extension())
					}
					open = r.Mask.Open()
					got := *r
					got.Images, got.Mask, got.N = nil, nil, nil
					extra := llm.Extra{"background": json.RawMessage(`"opaque"`)}
					for k, v := range test.extra {
						extra[k] = v
					}
					assert.Equal(t, llm.ImageRequest{Model: "m", Prompt: "a hat", Size: "auto", Quality: "low", ResponseFormat: "url", Extra: extra}, got)
					assert.Equal(t, llmhttp.OperationImageEdits, llmhttp.RequestInfoFrom(ctx).Operation)
					if dir != "" {
						assertEmptyDir(t, dir) // files have no name
					}
					return &llm.ImageResponse{Data: []llm.Image{{Data: []byte(pngData)}, {URL: "https://example.com/b.png"}}}, nil
				})
				s := startServer(t, config{backend: b, opts: llmhttp.Options{FileDir: dir}})
				r := s.do("POST", imageEditsPath, test.body)
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Contains(t, r.body, `"data":[{"url":"`+dataURL(pngData)+`"},{"url":"https://example.com/b.png"}]`)
				s.waitForSummaries(1)
				_, err := open.Read(make([]byte, 1))
				require.ErrorIs(t, err, fs.ErrClosed, "the request has ended")
				record := s.record()
				assert.Equal(t, llmhttp.OperationImageEdits, record.Operation)
				assert.Equal(t, llmhttp.Units{Images: 2}, record.Units)
				assert.Equal(t, [2]string{"auto", "low"}, [2]string{record.ImageSize, record.ImageQuality})
			})
		}
	}
}

// The format does not fill in a size, because edits have that of the image, and replies have data,
// because clients such as the AI SDK read nothing else.
func TestImageEdits_Defaults(t *testing.T) {
	s := startServer(t, config{backend: editing(func(_ context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
		assert.Empty(t, r.Size)
		assert.Equal(t, 1, r.Count())
		return &llm.ImageResponse{Created: 1, Data: []llm.Image{{Data: []byte("x")}}, Usage: &llm.Usage{PromptTokens: 5, CompletionTokens: 7}}, nil
	})})
	assert.Equal(t, `{"created":1,"data":[{"b64_json":"eA=="}],"usage":{"input_tokens":5,"output_tokens":7,"total_tokens":12}}`, s.do("POST", imageEditsPath, imageEditBody).body)
	assert.Equal(t, llmhttp.Units{PromptTokens: 5, CompletionTokens: 7, Images: 1}, s.record().Units)
}

func TestImageEdits_Mistakes(t *testing.T) {
	s := startServer(t, config{backend: editing(func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) { panic("called") })})
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 17), ",")
	asJSON := func(images string) string { return ` {"model":"m","prompt":"p",` + images + `}` }
	for _, test := range []struct{ body, code, param string }{
		{`{"prompt":"p","model":"m"}`, missing, "image"},
		{`{"prompt":"p","image":"x"}`, missing, "model"},
		{`{"model":"m","image":"x"}`, missing, "prompt"},
		{`{"prompt":"p","model":"m","image":""}`, invalidValue, "image"},
		{`{"prompt":"p","model":"m","image[]":["a",""]}`, invalidValue, "image[1]"},
		{`{"prompt":"p","model":"m","image":[` + many + `]}`, arrayTooLong, "image"},
		{`{"prompt":"p","model":"m","image":"a","mask":""}`, invalidValue, "mask"},
		{`{"prompt":"p","model":"m","image":"a","mask":["a","b"]}`, duplicate, "mask"},
		{`{"prompt":"p","model":"m","image":"a","Mask":"a"}`, "unknown_parameter", "Mask"},
		{`{"prompt":["p","q"],"model":"m","image":"a"}`, duplicate, "prompt"},
		{`{"prompt":"p","model":"m","image":"a","n":"1.5"}`, invalidValue, "n"},
		{`{"prompt":"p","model":"m","image":"a","n":11}`, integerHigh, "n"},
		{`{"prompt":"p","model":"m","image":"a","n":0}`, integerLow, "n"},
		{`{"prompt":"p","model":"m","image":"a","size":"big"}`, invalidValue, "size"},
		{`{"prompt":"p","model":"m","image":"a","quality":"ultra"}`, invalidValue, "quality"},
		{`{"prompt":"p","model":"m","image":"a","response_format":"png"}`, invalidValue, "response_format"},
		{`{"prompt":"p","model":"m","image":"a","api_base":"http://x"}`, "unknown_parameter", "api_base"},
		{asJSON(`"images":[]`), missing, "images"},
		{asJSON(`"image":"x"`), "unknown_parameter", "image"},
		{asJSON(`"image":"x","images":[{"image_url":"data:image/png;base64,eA=="}]`), "unknown_parameter", "image"},
		{asJSON(`"image[]":["x"],"images":[{"image_url":"data:image/png;base64,eA=="}]`), "unknown_parameter", "image[]"},
		{asJSON(`"mask[]":["x"],"images":[{"image_url":"data:image/png;base64,eA=="}]`), "unknown_parameter", "mask[]"},
		{asJSON(`"model[]":["x"],"images":[{"image_url":"data:image/png;base64,eA=="}]`), "unknown_parameter", "model[]"},
		{asJSON(`"images":"x"`), invalidType, "images"},
		{asJSON(`"images":["x"]`), invalidType, "images[0]"},
		{asJSON(`"images":[{}]`), missing, "images[0].image_url"},
		{asJSON(`"images":[{"file_id":"file_1"}]`), invalidValue, "images[0].file_id"},
		{asJSON(`"images":[{"image_url":"https://example.com/a.png"}]`), invalidValue, "images[0].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png\r\nContent-Disposition: form-data; name=\"model\";base64,YmlnLW1vZGVs"}]`), invalidValue, "images[0].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png\nContent-Disposition: form-data; name=\"model\";base64,YmlnLW1vZGVs"}]`), invalidValue, "images[0].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png;\r\nname=model;base64,YmlnLW1vZGVs"}]`), invalidValue, "images[0].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png;base64,eA=="}],"mask":{"image_url":"data:image/png\n;base64,eA=="}`), invalidValue, "mask.image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png,x"}]`), invalidValue, "images[0].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png;base64,eA=="},{"image_url":"data:image/png;base64,*"}]`), invalidValue, "images[1].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png;base64,"}]`), invalidValue, "images[0].image_url"},
		{asJSON(`"images":[{"image_url":"data:image/png;base64,eA=="}],"mask":{"image_url":"x"}`), invalidValue, "mask.image_url"},
		{asJSON(`"images":[` + strings.TrimSuffix(strings.Repeat(`{"image_url":"x"},`, 17), ",") + `]`), arrayTooLong, "images"},
		{asJSON(`"n":"1","images":[]`), invalidType, "n"},
	} {
		e := s.do("POST", imageEditsPath, test.body).checkError(t, 400)
		assert.Equal(t, test.code, e.Code, test.body)
		assert.Equal(t, test.param, e.Param, test.body)
		checkWords(t, e)
	}
	assert.Empty(t, s.usage.records())
	r := s.do("POST", imageEditsPath, " x", withHeader("Content-Type", "text/plain"))
	assert.Equal(t, "unsupported_media_type", r.checkError(t, 415).Code)
}

// The bounds of files hold for forms and for JSON, and no file remains.
func TestImageEdits_FilesAreBounded(t *testing.T) {
	key := testKey()
	key.Models, key.Limits = []string{"good"}, llmhttp.Limits{Tokens: llmhttp.Rate{N: 200, Per: time.Hour}}
	called := 0
	b := editing(func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
		called++
		return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("x")}}}, nil
	})
	for _, dir := range []string{"", t.TempDir()} {
		s := startServer(t, config{backend: b, keys: keysFor(key), opts: llmhttp.Options{MaxFiles: 100_000, FileDir: dir}})
		for kind, send := range map[string]func(model string, a, b int) reply{
			"form": func(model string, a, b int) reply {
				return s.do("POST", imageEditsPath, `{"image":["`+strings.Repeat("a", a)+`","`+strings.Repeat("b", b)+`"],"model":"`+model+`","prompt":"p"}`)
			},
			"JSON": func(model string, a, b int) reply {
				return s.do("POST", imageEditsPath, fmt.Sprintf(` {"model":%q,"prompt":"p","images":[{"image_url":%q},{"image_url":%q}]}`,
					model, dataURL(strings.Repeat("a", a)), dataURL(strings.Repeat("b", b))))
			},
		} {
			t.Run(kind, func(t *testing.T) {
				send("bad", 10, 10).checkError(t, 404)
				send("good", 50_000, 50_000).checkError(t, 429)
				assert.Equal(t, "request_too_large", send("good", 50_000, 50_001).checkError(t, 413).Code)
				assert.Zero(t, called)
				assert.Empty(t, s.usage.records())
			})
		}
		if dir != "" {
			assertEmptyDir(t, dir)
			require.NoError(t, os.Remove(dir))
			send := s.do("POST", imageEditsPath, ` {"model":"good","prompt":"p","images":[{"image_url":"`+dataURL("a")+`"}]}`)
			assert.Equal(t, internalMessage, send.checkError(t, 500).Message)
		}
	}
}

// Sizes that the client leaves to the Backend are not checked against those of a model.
func TestImageEdits_SizesOfAModel(t *testing.T) {
	s := startServer(t, config{backend: &stubBackend{sizes: func(context.Context, string) ([]string, error) { return []string{"256x256"}, nil }}})
	edit := func(size string) reply {
		return s.do("POST", imageEditsPath, `{"image":"x","model":"m","prompt":"p","size":"`+size+`"}`)
	}
	for _, size := range []string{"", "auto", "256x256"} {
		assert.Equal(t, 200, edit(size).StatusCode, size)
	}
	assert.Equal(t, "size", edit("1024x1024").checkError(t, 400).Param)
	assert.Equal(t, 200, s.do("POST", imagesPath, `{"model":"m","prompt":"p","size":"auto"}`).StatusCode)
}
