package imageedit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	pictures "image"
	"image/color"
	"image/draw"
	"image/png"
	"log"
	"mime/multipart"
	"net/http/httptest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// An editor makes an image grey, whatever the prompt is.
type editor struct{ llmhttp.Backend }

func (editor) EditImages(ctx context.Context, req *imageedit.Request) (*llm.ImageResponse, error) {
	in, err := png.Decode(req.Images[0].Open())
	if err != nil {
		return nil, &llm.Error{Status: 400, Code: "invalid_value", Param: "image", Message: "The image is not a PNG."}
	}
	grey := pictures.NewGray(in.Bounds())
	draw.Draw(grey, grey.Rect, in, in.Bounds().Min, draw.Src)
	var out bytes.Buffer
	if err := png.Encode(&out, grey); err != nil {
		return nil, err
	}
	resp := &llm.ImageResponse{}
	for range req.Count() {
		resp.Data = append(resp.Data, llm.Image{Data: out.Bytes()})
	}
	return resp, nil
}

func Example() {
	h := llmhttp.NewHandler(editor{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: imageedit.Routes(nil)})

	red := pictures.NewRGBA(pictures.Rect(0, 0, 8, 8))
	draw.Draw(red, red.Rect, pictures.NewUniform(color.RGBA{R: 255, A: 255}), pictures.Point{}, draw.Src)
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	m.WriteField("model", "grey")
	m.WriteField("prompt", "Without colours, please.")
	part, err := m.CreateFormFile("image", "red.png")
	if err != nil {
		log.Fatal(err)
	}
	png.Encode(part, red)
	m.Close()
	r := httptest.NewRequest("POST", "/v1/images/edits", &body)
	r.Header.Set("Authorization", "Bearer sk-demo")
	r.Header.Set("Content-Type", m.FormDataContentType())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	var reply struct {
		Data []struct {
			Image []byte `json:"b64_json"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || len(reply.Data) == 0 {
		log.Fatal(w.Body, err)
	}
	edited, err := png.Decode(bytes.NewReader(reply.Data[0].Image))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Code, edited.Bounds(), edited.At(0, 0))
	// Output: 200 (0,0)-(8,8) {76}
}
