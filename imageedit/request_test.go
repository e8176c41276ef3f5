package imageedit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
)

// Validate fills in what edits leave open, which is not what generations do, and changes nothing twice.
func TestRequest_Validate(t *testing.T) {
	file := func(content string) *llm.File {
		return &llm.File{Name: "a.png", Size: int64(len(content)), Content: strings.NewReader(content)}
	}
	valid := func() *imageedit.Request {
		return &imageedit.Request{ImageRequest: llm.ImageRequest{Model: "m", Prompt: "p"}, Images: []*llm.File{file("x")}}
	}
	for range 2 {
		r := valid()
		require.NoError(t, r.Validate())
		assert.Equal(t, llm.ImageRequest{Model: "m", Prompt: "p"}, r.ImageRequest)
	}
	for param, change := range map[string]func(r *imageedit.Request){
		"":                func(r *imageedit.Request) { r.Size, r.ResponseFormat, r.Mask = "5x5", llm.ImageFormatURL, file("x") },
		"model":           func(r *imageedit.Request) { r.Model = "" },
		"n":               func(r *imageedit.Request) { r.N = new(11) },
		"size":            func(r *imageedit.Request) { r.Size = "big" },
		"quality":         func(r *imageedit.Request) { r.Quality = "x" },
		"response_format": func(r *imageedit.Request) { r.ResponseFormat = "png" },
		"image":           func(r *imageedit.Request) { r.Images = nil },
		"image[1]":        func(r *imageedit.Request) { r.Images = append(r.Images, file("")) },
		"mask":            func(r *imageedit.Request) { r.Mask = file("") },
	} {
		r := valid()
		change(r)
		err := r.Validate()
		if param == "" {
			assert.NoError(t, err)
			continue
		}
		var e *llm.Error
		require.ErrorAs(t, err, &e, param)
		assert.Equal(t, param, e.Param)
		assert.Equal(t, 400, e.Status)
	}
}

// The JSON of a request is that of one for images: it is kept in logs and journals, without the files.
func TestRequest_JSON(t *testing.T) {
	r := imageedit.Request{
		ImageRequest: llm.ImageRequest{Model: "m", Prompt: "p", Extra: llm.Extra{"seed": json.RawMessage("5")}},
		Images:       []*llm.File{{Name: "a.png"}}, Mask: &llm.File{Name: "m.png"},
	}
	assert.Equal(t, []*llm.File{r.Images[0], r.Mask}, r.Files())
	b, err := json.Marshal(r)
	require.NoError(t, err)
	assert.JSONEq(t, `{"model":"m","prompt":"p","seed":5}`, string(b))
	var decoded imageedit.Request
	require.NoError(t, json.Unmarshal(b, &decoded))
	assert.Equal(t, imageedit.Request{ImageRequest: r.ImageRequest}, decoded)
}
