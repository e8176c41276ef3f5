package llmhttp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/llm"
)

func TestImages_Params(t *testing.T) {
	bodies := func(list ...string) []string { return list }
	members := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","prompt":"p",` + s + `}` }, list...)
	}
	prompt := func(p string) string { return `{"model":"m","prompt":"` + p + `"}` }
	s := startServer(t, config{})
	checkParams(t, s, imagesPath, []paramTest{
		{"", notJSON, bodies(`{`)},
		{"", invalidType, bodies(`[]`)},
		{"model", missing, bodies(`{}`, `{"prompt":"p"}`, `{"model":"","prompt":"p"}`)},
		{"model", invalidType, bodies(`{"model":5,"prompt":"p"}`)},
		{"prompt", missing, bodies(`{"model":"m"}`, prompt(""), `{"model":"m","prompt":null}`)},
		{"prompt", invalidType, bodies(`{"model":"m","prompt":["p"]}`)},
		{"prompt", stringTooLong, bodies(prompt(strings.Repeat("é", 32001)), prompt(strings.Repeat("x", 32001)))},
		{"", accepted, bodies(prompt("p"), prompt(strings.Repeat("é", 32000)))},
		{"n", integerLow, members(`"n":0`, `"n":-1`)},
		{"n", integerHigh, members(`"n":11`, `"n":1e30`, `"n":1e999`)},
		{"n", invalidType, members(`"n":1.5`, `"n":"1"`)},
		{"n", duplicate, members(`"n":1,"n":1`)},
		{"", accepted, members(`"n":1`, `"n":10`, `"n":2.0`, `"n":null`)},
		{"size", invalidValue, members(`"size":""`, `"size":"Auto"`, `"size":"1024"`, `"size":"1024X1024"`, `"size":"1024x1024x3"`, `"size":"x"`, `"size":"0x0"`,
			`"size":"-5x5"`, `"size":" 5x5"`, `"size":"100000x1"`, `"size":"٣x٣"`, `"size":"`+strings.Repeat("9", 5000)+`"`)},
		{"size", invalidType, members(`"size":1024`)},
		{"", accepted, members(`"size":null`, `"size":"auto"`, `"size":"1024x1024"`, `"size":"1792x1024"`, `"size":"1x1"`, `"size":"99999x99999"`)},
		{"quality", invalidValue, members(`"quality":""`, `"quality":"ultra"`, `"quality":"HD"`)},
		{"quality", invalidType, members(`"quality":5`)},
		{"", accepted, members(`"quality":"standard"`, `"quality":"hd"`, `"quality":"low"`, `"quality":"medium"`, `"quality":"high"`, `"quality":"xhigh"`, `"quality":"max"`, `"quality":"auto"`, `"quality":null`)},
		{"response_format", invalidValue, members(`"response_format":"png"`)},
		{"response_format", invalidType, members(`"response_format":{"type":"url"}`)},
		{"", accepted, members(`"response_format":"url"`, `"response_format":"b64_json"`, `"response_format":null`)},
		{"", accepted, members(`"style":"vivid","user":"u","n_images":99`)},
	})
}

func TestImages_DefaultsReachTheBackend(t *testing.T) {
	b := new(lastRequestBackend)
	s := startServer(t, config{backend: b})
	for _, members := range []string{`"style":"vivid"`, `"style":"vivid","n":null,"size":null,"quality":null,"response_format":null`} {
		s.do("POST", imagesPath, `{"model":"m","prompt":"p",`+members+`}`)
		assert.Equal(t, &llm.ImageRequest{Model: "m", Prompt: "p", Size: "1024x1024",
			Extra: llm.Extra{"style": json.RawMessage(`"vivid"`)}}, b.images.Load())
		assert.Equal(t, 1, b.images.Load().Count())
	}
	b.images.Store(nil)
	s.do("POST", imagesPath, `{"model":"m","prompt":"p","n":0}`)
	assert.Nil(t, b.images.Load(), "a bad request does not reach the Backend")
}

// ImageSizes restricts the parameter size. If it is unsupported, every size is accepted.
func TestImages_SizesOfAModel(t *testing.T) {
	sizes := map[string][]string{
		"small": {"256x256", "512x512", "1024x1024"},
		"large": {"1024x1024", "1024x1792", "1792x1024"},
		"any":   nil,
	}
	s := startServer(t, config{backend: &stubBackend{sizes: func(_ context.Context, model string) ([]string, error) {
		switch model {
		case "unsupported":
			return nil, fmt.Errorf("no sizes: %w", errors.ErrUnsupported)
		case "broken":
			return nil, errCause
		}
		list, ok := sizes[model]
		if !ok {
			return nil, llm.ModelNotFound(model)
		}
		return list, nil
	}}})
	ask := func(model, size string) reply {
		return s.do("POST", imagesPath, fmt.Sprintf(`{"model":%q,"prompt":"p","size":%q}`, model, size))
	}
	for _, size := range slices.Concat([]string{"640x480"}, sizes["small"], sizes["large"]) {
		for _, model := range []string{"small", "large"} {
			r := ask(model, size)
			if slices.Contains(sizes[model], size) {
				assert.Equal(t, 200, r.StatusCode)
				continue
			}
			assert.Equal(t, apiError{
				Message: fmt.Sprintf("Invalid value: '%s'. Supported values are: '%s', '%s', and '%s'.", size, sizes[model][0], sizes[model][1], sizes[model][2]),
				Type:    "invalid_request_error", Param: "size", Code: invalidValue,
			}, r.checkError(t, 400))
		}
		assert.Equal(t, 200, ask("any", size).StatusCode)
		assert.Equal(t, 200, ask("unsupported", size).StatusCode)
	}
	assert.Equal(t, "model_not_found", ask("other", "5x5").checkError(t, 404).Code)
	ask("broken", "5x5").checkError(t, 500)
}

func TestImages_DefaultSizeMustBeOneOfTheModel(t *testing.T) {
	s := startServer(t, config{backend: &stubBackend{sizes: func(context.Context, string) ([]string, error) { return []string{"256x256"}, nil }}})
	assert.Equal(t, "size", s.do("POST", imagesPath, imageBody).checkError(t, 400).Param)
}

// An image has the response_format that the client asks for, or is what the Backend gave.
func TestImages_ResponseFormat(t *testing.T) {
	text := base64.StdEncoding.EncodeToString([]byte(pngData))
	data := llm.Image{Data: []byte(pngData), RevisedPrompt: "a better p"}
	address := llm.Image{URL: "https://images.example/1.png", RevisedPrompt: "a better p"}
	dataURL := llm.Image{URL: "data:image/png;base64," + text}
	imageURL := func(_ context.Context, b []byte, media string) (string, error) {
		assert.Equal(t, pngData, string(b))
		assert.Equal(t, "image/png", media)
		return "https://put.example/x", nil
	}
	tests := []struct {
		name        string
		image       llm.Image // of the Backend
		format      string    // "" is left out
		hasImageURL bool
		want        string // "" means a failure
	}{
		{"data as url", data, "url", false, `{"url":"data:image/png;base64,` + text + `","revised_prompt":"a better p"}`},
		{"data as url, with ImageURL", data, "url", true, `{"url":"https://put.example/x","revised_prompt":"a better p"}`},
		{"data", data, "", true, `{"b64_json":"` + text + `","revised_prompt":"a better p"}`},
		{"URL", address, "", false, `{"url":"https://images.example/1.png","revised_prompt":"a better p"}`},
		{"data URL", dataURL, "", true, `{"url":"data:image/png;base64,` + text + `"}`},
		{"neither", llm.Image{RevisedPrompt: "a better p"}, "", false, ""},
		{"SVG as url", llm.Image{Data: []byte("<svg/>")}, "url", false, `{"url":"data:image/svg+xml;base64,PHN2Zy8+"}`},
		{"data as b64_json", data, "b64_json", true, `{"b64_json":"` + text + `"}`},
		{"URL as url", address, "url", true, `{"url":"https://images.example/1.png","revised_prompt":"a better p"}`},
		{"URL as b64_json", address, "b64_json", false, ""},
		{"data URL as url", dataURL, "url", true, `{"url":"data:image/png;base64,` + text + `"}`},
		{"data URL as b64_json", dataURL, "b64_json", false, `{"b64_json":"` + text + `"}`},
		{"data URL and empty data as b64_json", llm.Image{URL: dataURL.URL, Data: []byte{}}, "b64_json", false, `{"b64_json":"` + text + `"}`},
		{"empty data as b64_json", llm.Image{Data: []byte{}}, "b64_json", false, ""},
		{"empty data URL as b64_json", llm.Image{URL: "data:image/png;base64,"}, "b64_json", false, ""},
		{"invalid data URL as b64_json", llm.Image{URL: "data:image/png;base64,***"}, "b64_json", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config{backend: &stubBackend{images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
				return &llm.ImageResponse{Created: 1760092079, Data: []llm.Image{tt.image}}, nil
			}}}
			if tt.hasImageURL {
				c.opts.ImageURL = imageURL
			}
			s := startServer(t, c)
			body := `{"model":"m","prompt":"p"}`
			if tt.format != "" {
				body = `{"model":"m","prompt":"p","response_format":"` + tt.format + `"}`
			}
			r := s.do("POST", imagesPath, body)
			if tt.want == "" {
				r.checkError(t, 500)
				return
			}
			assert.Equal(t, `{"created":1760092079,"data":[`+tt.want+`]}`, r.body)
			assert.EqualValues(t, 1, s.record().Units.Images)
		})
	}
}
