package llmhttp_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A librarian is a Backend with two models, of which it tells what clients want to know before they
// choose one.
type librarian struct{}

func (librarian) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	switch req.Model {
	case "librarian", "librarian-small":
		return llm.Reply("Shh!")
	}
	return llm.Fail(llm.ModelNotFound(req.Model)) // a 404, which clients of the API know
}

func (librarian) ListModels(ctx context.Context) ([]llm.Model, error) {
	return []llm.Model{
		{
			ID: "librarian", OwnedBy: "library", DisplayName: "Librarian",
			ContextWindow: 128_000, OutputLimit: 8_000,
			Capabilities: []llm.Capability{llm.CapabilityTools, llm.CapabilityVision},
		},
		{ID: "librarian-small", OwnedBy: "library", Capabilities: []llm.Capability{}}, // text alone
	}, nil
}

func ExampleModelLister() {
	h := llmhttp.NewHandler(librarian{}, memory.NewKeyStore("sk-demo"), nil)

	r := httptest.NewRequest("GET", "/v1/models", nil)
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var list struct{ Data []json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		panic(err)
	}
	for _, model := range list.Data {
		fmt.Println(string(model))
	}

	fmt.Println(post(h, strings.Replace(hello, "demo", "librarien", 1)).Status)
	// Output:
	// {"id":"librarian","object":"model","created":0,"owned_by":"library","name":"Librarian","context_length":128000,"max_output_tokens":8000,"capabilities":["tools","vision"]}
	// {"id":"librarian-small","object":"model","created":0,"owned_by":"library","capabilities":[]}
	// 404 Not Found
}

// A painter is a Backend whose images are all the same.
type painter struct{ librarian }

func (painter) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("\x89PNG\r\n\x1a\n...")}}}, nil
}

// Images that clients want as URLs are stored in a directory, and served from it by another path of
// the same mux, or by a CDN. The names are random: a person who knows one can see the image.
func ExampleOptions_imageURL() {
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()

	store := func(ctx context.Context, data []byte, mediaType string) (string, error) {
		name := rand.Text()
		if extensions, _ := mime.ExtensionsByType(mediaType); len(extensions) > 0 {
			name += extensions[0]
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err // becomes a 500, and is logged
		}
		return server.URL + "/images/" + name, nil
	}
	keys := memory.NewKeyStore("sk-demo")
	mux.Handle("/v1/", llmhttp.NewHandler(painter{}, keys, &llmhttp.Options{ImageURL: store}))
	mux.Handle("GET /images/{name}", http.StripPrefix("/images/", http.FileServer(http.Dir(dir))))

	r, _ := http.NewRequest("POST", server.URL+"/v1/images/generations", strings.NewReader(
		`{"model": "painter", "prompt": "a lighthouse", "response_format": "url"}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var answer llm.ImageResponse
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		panic(err)
	}
	picture, err := http.Get(answer.Data[0].URL)
	if err != nil {
		panic(err)
	}
	defer picture.Body.Close()
	fmt.Println(resp.Status, picture.Status, picture.Header.Get("Content-Type"))
	// Output: 200 OK 200 OK image/png
}
