package upstream_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
)

const (
	imagesPath = "/v1/images/generations"
	askImage   = `{"model":"m","prompt":"a cat","response_format":"b64_json"}`
	png        = "\x89PNG\r\n\x1a\nrest of it"
)

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// newImageHost starts a server for images. Its URL has another host name than
// that of a rawServer.
func newImageHost(t *testing.T, h http.HandlerFunc) (base, host string) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	base = strings.Replace(srv.URL, "127.0.0.1", "localhost", 1)
	return base, strings.TrimPrefix(base, "http://")
}

// newImageServer starts a server that replies with images.
func newImageServer(t *testing.T, images ...string) *rawServer {
	t.Helper()
	return newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeReply(c, 200, mediaJSON, `{"created":5,"data":[`+strings.Join(images, ",")+`],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7},"background":"opaque"}`)
	})
}

func TestGenerateImages(t *testing.T) {
	images, host := newImageHost(t, func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			assert.NotContains(t, strings.Join(values, " "), serverKey, name)
			assert.NotContains(t, strings.Join(values, " "), clientKey, name)
		}
		switch r.URL.Path {
		case "/a.png":
			w.Write([]byte(png))
		case "/typed":
			w.Header().Set("Content-Type", "image/avif")
			w.Write([]byte("unknown format"))
		case "/large":
			w.Write([]byte(png + strings.Repeat("x", 5000)))
		case "/html":
			w.Write([]byte("<html>Sign in</html>"))
		case "/svg":
			w.Header().Set("Content-Type", "text/plain")
			w.Write([]byte("<svg/>"))
		case "/empty":
			w.Header().Set("Content-Type", "image/png")
		case "/redirect":
			http.Redirect(w, r, "/a.png", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	})
	own := strings.Replace(images, "localhost", "127.0.0.1", 1) // the host of the server, as clients must not see it
	allowed := []string{host, strings.TrimPrefix(own, "http://")}
	const b64, address = "b64_json", "url"
	data := `"b64_json":"` + base64Of(png) + `"`
	dataURL := `"url":"data:image/png;base64,` + base64Of(png) + `"`
	for _, test := range []struct {
		name, format, image string
		hosts               []string
		status              int
		want                string // the image that the client gets
		log                 string
	}{
		{"data as data", b64, `{` + data + `,"revised_prompt":"r"}`, nil, 200, `{` + data + `}`, ""},
		{"data as address", address, `{` + data + `,"revised_prompt":"r"}`, nil, 200, `{` + dataURL + `,"revised_prompt":"r"}`, ""},
		{"address as address", address, `{"url":"https://cdn.example.com/a.png?sig=1","b64_json":null}`, nil, 200, `{"url":"https://cdn.example.com/a.png?sig=1"}`, ""},
		{"address as data", b64, `{"url":"` + images + `/a.png"}`, allowed, 200, `{` + data + `}`, ""},
		{"data URL as data", b64, `{` + dataURL + `}`, nil, 200, `{` + data + `}`, ""},
		{"both as data", b64, `{"url":"https://cdn.example.com/a.png",` + data + `}`, nil, 200, `{` + data + `}`, ""},
		{"both as address", address, `{"url":"https://cdn.example.com/a.png",` + data + `}`, nil, 200, `{"url":"https://cdn.example.com/a.png"}`, ""},
		{"both as address, which is the server's", address, `{"url":"http://127.0.0.1:1/a.png",` + data + `}`, nil, 200, `{` + dataURL + `}`, ""},
		{"address of the server", address, `{"url":"` + own + `/a.png"}`, allowed, 200, `{` + dataURL + `}`, ""},
		{"address of the server, not allowed", address, `{"url":"` + own + `/a.png"}`, nil, 502, "", "its address is the server's own, which is not in Options.Images.Hosts"},
		{"address of the server with a dot at the end", address, `{"url":"` + strings.Replace(own, "127.0.0.1", "127.0.0.1.", 1) + `/a.png"}`, nil, 502, "", "its address is the server's own"},
		{"path, not allowed", address, `{"url":"/a.png"}`, nil, 502, "", "its address is the server's own"},
		{"image of an unknown format", b64, `{"url":"` + images + `/typed"}`, allowed, 200, `{"b64_json":"` + base64Of("unknown format") + `"}`, ""},
		{"SVG with the type of a text", b64, `{"url":"` + images + `/svg"}`, allowed, 200, `{"b64_json":"PHN2Zy8+"}`, ""},
		{"SVG of the server", address, `{"url":"` + own + `/svg"}`, allowed, 200, `{"url":"data:image/svg+xml;base64,PHN2Zy8+"}`, ""},
		{"other members", b64, `{` + data + `,"seed":7}`, nil, 200, `{` + data + `,"seed":7}`, ""},
		{"host that is not allowed", b64, `{"url":"` + images + `/a.png"}`, []string{"cdn.example.com", "127.0.0.1", "localhost"}, 502, "", "its host is not in Options.Images.Hosts"},
		{"no host is allowed", b64, `{"url":"` + images + `/a.png"}`, nil, 502, "", "its host is not in Options.Images.Hosts"},
		{"large image", b64, `{"url":"` + images + `/large"}`, allowed, 502, "", "larger than Options.Images.MaxSize"},
		{"HTML", b64, `{"url":"` + images + `/html"}`, allowed, 502, "", "not an image"},
		{"empty image", b64, `{"url":"` + images + `/empty"}`, allowed, 502, "", "the body is empty"},
		{"missing image", b64, `{"url":"` + images + `/none"}`, allowed, 502, "", "fetching an image: status 404"},
		{"redirect", b64, `{"url":"` + images + `/redirect"}`, allowed, 502, "", "fetching an image: status 302"},
		{"slow image", b64, `{"url":"` + images + `/slow"}`, allowed, 504, "", "fetching an image: timeout"},
		{"file URL", b64, `{"url":"file:///etc/passwd"}`, allowed, 502, "", "not one of http or https"},
		{"data URL without base64", b64, `{"url":"data:image/png,xyz"}`, nil, 502, "", "not base64"},
		{"data URL with invalid base64", address, `{"url":"data:image/png;base64,?"}`, nil, 502, "", "not base64"},
		{"empty data URL", address, `{"url":"data:image/png;base64,"}`, nil, 502, "", "its data: URL is empty"},
		{"neither data nor address", address, `{"revised_prompt":"r"}`, nil, 502, "", "neither data nor an address"},
		{"empty data and address", address, `{"url":"","b64_json":""}`, nil, 502, "", "neither data nor an address"},
		{"invalid base64", b64, `{"b64_json":"?"}`, nil, 502, "", "the reply is not valid"},
		{"no images", b64, ``, nil, 502, "", "no images"},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			opts := &upstream.Options{Images: upstream.ImageOptions{Hosts: test.hosts, MaxSize: 1000}}
			if test.status == 504 {
				opts.Images.Timeout = 100 * time.Millisecond
			}
			g := newGateway(t, newImageServer(t, test.image).url(), opts)
			got := g.do("POST", imagesPath, `{"model":"m","prompt":"a cat","response_format":"`+test.format+`"}`)
			require.Equal(t, test.status, got.StatusCode, "%s", got.body)
			sum := g.recordedUsage(1)
			assert.EqualValues(t, 1, sum.Requests)
			if test.status != 200 {
				g.checkNoSecrets("reply", got.body, host)
				assert.Contains(t, g.log.String(), test.log)
				assert.Zero(t, sum.Units.Images)
				return
			}
			assert.Equal(t, `{"created":5,"data":[`+test.want+`],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7},"background":"opaque"}`, got.body)
			assert.EqualValues(t, 1, sum.Units.Images)
			assert.EqualValues(t, 3, sum.Units.PromptTokens)
			assert.EqualValues(t, 4, sum.Units.CompletionTokens)
		})
	}
}

func TestImageOptions_Hosts(t *testing.T) {
	checkLeaks(t)
	transport := roundTripper(func(*http.Request) (*http.Response, error) {
		return okResponse("image/png", strings.NewReader(png)), nil
	})
	opts := upstream.ImageOptions{Transport: transport, Hosts: []string{"cdn.example.com", "*.img.example.com", "port.example.com:8080", "*.0.0.1"}}
	for address, allowed := range map[string]bool{
		"https://cdn.example.com/a":       true,
		"http://CDN.example.com.:80/a":    true,
		"https://cdn.example.com:443/a":   true,
		"http://cdn.example.com:443/a":    false,
		"https://cdn.example.com:8080/a":  false,
		"https://a.cdn.example.com/a":     false,
		"https://a.img.example.com/a":     true,
		"https://a.b.img.example.com/a":   true,
		"https://img.example.com/a":       false,
		"https://animg.example.com/a":     false,
		"https://port.example.com:8080/a": true,
		"https://port.example.com/a":      false,
		"https://127.0.0.1/a":             false,
	} {
		g := newGateway(t, newImageServer(t, `{"url":"`+address+`"}`).url(), &upstream.Options{Images: opts})
		got := g.do("POST", imagesPath, askImage)
		assert.Equal(t, allowed, got.StatusCode == 200, "%s: %s", address, got.body)
	}
}

// If one image cannot be fetched, the request fails without waiting for the others.
func TestGenerateImages_FirstFailureEndsAll(t *testing.T) {
	checkLeaks(t)
	images, host := newImageHost(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		http.NotFound(w, r)
	})
	s := newImageServer(t, `{"url":"`+images+`/slow"}`, `{"url":"`+images+`/none"}`, `{"url":"`+images+`/slow"}`)
	g := newGateway(t, s.url(), &upstream.Options{Images: upstream.ImageOptions{Hosts: []string{host}, Timeout: -1}})
	assert.Equal(t, bodyFailed, g.do("POST", imagesPath, withMembers(askImage, `"n":3`)).body)
	assert.Contains(t, g.log.String(), "status 404")
}

// context.Canceled from a Transport is not mistaken for a client that left.
func TestGenerateImages_TransportIsCanceled(t *testing.T) {
	checkLeaks(t)
	s := newImageServer(t, `{"url":"/a.png"}`)
	transport := roundTripper(func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf("closing: %w", context.Canceled) })
	hosts := []string{s.listener.Addr().String()}
	g := newGateway(t, s.url(), &upstream.Options{Images: upstream.ImageOptions{Hosts: hosts, Transport: transport}})
	for _, format := range []string{"url", "b64_json"} {
		got := g.do("POST", imagesPath, `{"model":"m","prompt":"a cat","response_format":"`+format+`"}`)
		assert.Equal(t, 502, got.StatusCode, "%s", got.body)
	}
}

func TestGenerateImages_LargestMaxSize(t *testing.T) {
	checkLeaks(t)
	images, host := newImageHost(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(png)) })
	s := newImageServer(t, `{"url":"`+images+`/a.png"}`)
	g := newGateway(t, s.url(), &upstream.Options{Images: upstream.ImageOptions{Hosts: []string{host}, MaxSize: math.MaxInt64}})
	assert.Contains(t, g.do("POST", imagesPath, askImage).body, base64Of(png))
}

// The Backend fetches at most as many images as a client can request.
func TestGenerateImages_TooMany(t *testing.T) {
	checkLeaks(t)
	var fetched atomic.Int64
	images, host := newImageHost(t, func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		w.Write([]byte(png))
	})
	for n, status := range map[int]int{10: 200, 1000: 502} {
		list := strings.TrimSuffix(strings.Repeat(`{"url":"`+images+`/a.png"},`, n), ",")
		g := newGateway(t, newImageServer(t, list).url(), &upstream.Options{Images: upstream.ImageOptions{Hosts: []string{host}}})
		got := g.do("POST", imagesPath, withMembers(askImage, `"n":10`))
		assert.Equal(t, status, got.StatusCode)
		assert.LessOrEqual(t, fetched.Swap(0), int64(10))
		if status == 200 {
			assert.Equal(t, 10, strings.Count(got.body, base64Of(png)))
		} else {
			assert.Contains(t, g.log.String(), "too many to be fetched")
		}
	}
}

func TestGenerateImages_ClientLeaves(t *testing.T) {
	checkLeaks(t)
	fetching, ended := make(chan struct{}), make(chan struct{})
	images, host := newImageHost(t, func(_ http.ResponseWriter, r *http.Request) {
		close(fetching)
		<-r.Context().Done()
		close(ended)
	})
	g := newGateway(t, newImageServer(t, `{"url":"`+images+`/a.png"}`).url(), &upstream.Options{Images: upstream.ImageOptions{Hosts: []string{host}}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-fetching
		cancel()
	}()
	_, err := g.Client().Do(g.request(ctx, "POST", imagesPath, askImage))
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	assert.ErrorIs(t, g.summary().Err, context.Canceled)
}

// The server gets a form, whatever the client has sent, with the files behind the other fields.
func TestEditImages(t *testing.T) {
	for name, test := range map[string]struct {
		body, contentType string
		omitFormat        bool
		values            map[string][]string
		files             string // the parts that are files, with their names, types and contents
	}{
		"form": {
			"--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"cat.png\"\r\nContent-Type: image/png\r\n\r\n" + png +
				"\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na hat" +
				"\r\n--b\r\nContent-Disposition: form-data; name=\"size\"\r\n\r\nauto\r\n--b\r\nContent-Disposition: form-data; name=\"output_compression\"\r\n\r\n80" +
				"\r\n--b\r\nContent-Disposition: form-data; name=\"tags[]\"\r\n\r\nx\r\n--b--\r\n",
			"multipart/form-data; boundary=b", false,
			map[string][]string{"model": {"served"}, "prompt": {"a hat"}, "size": {"auto"}, "output_compression": {"80"}, "tags[]": {"x"}},
			"image cat.png image/png " + png,
		},
		"JSON": {
			fmt.Sprintf(`{"model":"m","prompt":"a hat","n":2,"quality":"high","seed":5,"moderation":null,"images":[{"image_url":"data:image/webp;base64,%s"},{"image_url":"data:image/jpeg;base64,%s"}],"mask":{"image_url":"data:image/png;base64,%s"}}`, base64Of("a"), base64Of("b"), base64Of("c")),
			mediaJSON, true,
			map[string][]string{"model": {"served"}, "prompt": {"a hat"}, "n": {"2"}, "quality": {"high"}, "seed": {"5"}},
			"image[] image.webp image/webp a, image[] image.jpg image/jpeg b, mask mask.png image/png c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/images/edits", r.URL.Path)
				assert.Positive(t, r.ContentLength)
				parts, err := r.MultipartReader()
				if !assert.NoError(t, err) {
					return
				}
				values, files := make(map[string][]string), []string(nil)
				for {
					part, err := parts.NextPart()
					if err != nil {
						assert.Equal(t, io.EOF, err)
						break
					}
					content, err := io.ReadAll(part)
					assert.NoError(t, err)
					if part.FileName() != "" {
						files = append(files, strings.Join([]string{part.FormName(), part.FileName(), part.Header.Get("Content-Type"), string(content)}, " "))
						continue
					}
					assert.Empty(t, files, "files come last")
					values[part.FormName()] = append(values[part.FormName()], string(content))
				}
				assert.Equal(t, test.values, values)
				assert.Equal(t, test.files, strings.Join(files, ", "))
				w.Header().Set("Content-Type", mediaJSON)
				fmt.Fprintf(w, `{"created":5,"data":[{"b64_json":%q}],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7,"input_tokens_details":{"image_tokens":2,"text_tokens":1}}}`, base64Of(png))
			}))
			t.Cleanup(server.Close)
			g := newGateway(t, server.URL, &upstream.Options{Models: map[string]string{"m": "served"}, Images: upstream.ImageOptions{OmitFormat: test.omitFormat}})
			ask := g.request(t.Context(), "POST", "/v1/images/edits", test.body)
			ask.Header.Set("Content-Type", test.contentType)
			resp, err := g.Client().Do(ask)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode, "%s", body)
			assert.JSONEq(t, fmt.Sprintf(`{"created":5,"data":[{"b64_json":%q}],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7,"input_tokens_details":{"image_tokens":2,"text_tokens":1}}}`, base64Of(png)), string(body))
			assert.Equal(t, llmhttp.Units{PromptTokens: 3, PromptImageTokens: 2, CompletionTokens: 4, Images: 1}, g.recordedUsage(1).Units)
		})
	}
}

// A stream of images passes through, whether the server sends events or ignores that it is asked for them.
func TestStreamImages(t *testing.T) {
	event := func(kind, data, more string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"b64_json\":\"" + base64Of(data) + "\",\"created_at\":7,\"size\":\"2x3\"" + more + "}\n\n"
	}
	const (
		partial, completed = "image_generation.partial_image", "image_generation.completed"
		usage              = `,"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}`
		mediaStream        = "text/event-stream"
	)
	for name, test := range map[string]struct {
		n                  int
		contentType, reply string
		want               []string // in the body of the reply
		status             int
		units              llmhttp.Units
	}{
		"events": {1, mediaStream, event(partial, "p", `,"partial_image_index":0`) + ": ping\n\n" + event(completed, "a", usage) + "data: later\n\n",
			[]string{`"b64_json":"` + base64Of("p"), `"partial_image_index":0`, `"created_at":7`, `"size":"2x3"`, `"b64_json":"` + base64Of("a"), usage}, 200,
			llmhttp.Units{PromptTokens: 3, CompletionTokens: 4, Images: 1}},
		"two images": {2, mediaStream, event(completed, "a", "") + event("image_generation.later", "x", "") + event(completed, "b", usage),
			[]string{base64Of("a"), base64Of("b"), usage}, 200, llmhttp.Units{PromptTokens: 3, CompletionTokens: 4, Images: 2}},
		"fewer images": {3, mediaStream, event(completed, "a", usage) + "data: [DONE]\n\n", []string{base64Of("a"), usage}, 200,
			llmhttp.Units{PromptTokens: 3, CompletionTokens: 4, Images: 1}},
		"a whole reply": {2, mediaJSON, `{"created":5,"data":[{"b64_json":"` + base64Of("a") + `"},{"b64_json":"` + base64Of("b") + `"}]` + usage + `}`,
			[]string{base64Of("a"), base64Of("b"), usage}, 200, llmhttp.Units{PromptTokens: 3, CompletionTokens: 4, Images: 2}},
		"an error":              {1, mediaStream, "data: {\"error\":{\"message\":\"down\",\"code\":503}}\n\n", nil, 503, llmhttp.Units{}},
		"an error event":        {1, mediaStream, "event: error\ndata: {\"error\":{\"message\":\"down\",\"code\":503}}\n\n", nil, 503, llmhttp.Units{}},
		"no image":              {1, mediaStream, "data: [DONE]\n\n", nil, 502, llmhttp.Units{}},
		"an empty reply":        {1, mediaStream, "", nil, 502, llmhttp.Units{}},
		"no JSON":               {1, mediaStream, "data: x\n\n", nil, 502, llmhttp.Units{}},
		"a whole reply without": {1, mediaJSON, `{"data":[]}`, nil, 502, llmhttp.Units{}},
	} {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn, r *rawRequest) {
				assert.Contains(t, r.body, `"stream":true,"partial_images":1`)
				writeReply(c, 200, test.contentType, test.reply)
			})
			g := newGateway(t, server.url(), nil)
			r := g.do("POST", imagesPath, fmt.Sprintf(`{"model":"m","prompt":"p","stream":true,"partial_images":1,"n":%d}`, test.n))
			require.NoError(t, r.err)
			assert.Equal(t, test.status, r.StatusCode, "%s", r.body)
			if test.status != 200 {
				return
			}
			for _, want := range test.want {
				assert.Contains(t, r.body, want)
			}
			assert.Equal(t, test.units, g.recordedUsage(1).Units)
		})
	}
}

// What a client, or a host that asks the Backend itself, gives to a form neither adds headers to a part nor
// takes the place of a field of the request.
func TestForm_IsWrittenSafely(t *testing.T) {
	var parts []string
	asked := 0
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		asked++
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "Content-Disposition: ") {
				parts = append(parts, strings.TrimPrefix(strings.TrimSpace(line), "Content-Disposition: form-data; "))
			}
		}
		return okResponse(mediaJSON, strings.NewReader(`{"text":"a","data":[{"b64_json":"`+base64Of(png)+`"}]}`)), nil
	})
	b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
	file := func(name, contentType string) *llm.File {
		return &llm.File{Name: name, ContentType: contentType, Size: 1, Content: strings.NewReader("x")}
	}
	text := json.RawMessage(`"x"`)
	for name, test := range map[string]struct {
		file  *llm.File
		extra string // the name of a member
		want  bool
	}{
		"safe":               {file("a \"b\".png", "image/png; x=y"), "seed", true},
		"type with CRLF":     {file("a.png", "image/png\r\nContent-Disposition: form-data; name=\"model\""), "", false},
		"type with LF":       {file("a.png", "image/png\nX: y"), "", false},
		"name with LF":       {file("a\n.png", ""), "", false},
		"name with NUL":      {file("a\x00.png", ""), "", false},
		"name with NEL":      {file("a\u0085.png", ""), "", false},
		"member with LF":     {file("a.png", ""), "a\nb", false},
		"member of a field":  {file("a.png", ""), "model", true},
		"list for a field":   {file("a.png", ""), "response_format[]", true},
		"empty field":        {file("a.png", ""), "stream", true},
		"member of the file": {file("a.png", ""), "image[]", true},
	} {
		t.Run(name, func(t *testing.T) {
			extra, values := llm.Extra{"p": text}, map[string][]string{"p": {"x"}}
			if test.extra != "" {
				extra[test.extra], values[strings.Replace(test.extra, "image", "file", 1)] = text, []string{"x"}
			}
			edit := imageedit.Request{ImageRequest: llm.ImageRequest{Model: "m", Prompt: "p", Extra: extra}, Images: []*llm.File{test.file}}
			masked := edit
			masked.Images, masked.Mask = []*llm.File{file("a.png", "")}, test.file
			transcription := audio.TranscriptionRequest{Model: "m", File: test.file, Extra: values}
			for param, call := range map[string]func() error{
				"image": func() error { _, err := b.EditImages(t.Context(), &edit); return err },
				"mask":  func() error { _, err := b.EditImages(t.Context(), &masked); return err },
				"stream": func() error {
					for _, err := range b.StreamImageEdits(t.Context(), &edit) {
						return err
					}
					return nil
				},
				"file": func() error {
					_, err := audio.CollectTranscription(b.Transcribe(t.Context(), &transcription))
					return err
				},
			} {
				asked, parts = 0, nil
				err := call()
				if test.want {
					require.NoError(t, err)
					assert.Equal(t, 1, asked)
					for _, field := range []string{"model", "response_format[]", "stream", "image[]", "file[]"} {
						count := 0
						for _, part := range parts {
							if strings.HasPrefix(part, `name="`+field+`"`) {
								count++
							}
						}
						assert.Equal(t, map[bool]int{true: 1}[field == "model"], count, "%s of %q", field, parts)
					}
					continue
				}
				assert.Zero(t, asked)
				refused, ok := errors.AsType[*llm.Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, 400, refused.Status)
				switch {
				case test.extra != "":
					param = ""
				case param == "stream":
					param = "image"
				}
				assert.Equal(t, param, refused.Param)
			}
		})
	}
}

// A Transport of the host gets no header with a control character, whatever the host makes the ID of a request.
func TestHeaders_NoControlCharacters(t *testing.T) {
	transport := roundTripper(func(*http.Request) (*http.Response, error) { panic("called") })
	g := newGateway(t, "http://upstream.test", &upstream.Options{Transport: transport}, func(o *llmhttp.Options) {
		o.RequestID = func(*http.Request) string { return "id\r\nX-Other: y" }
	})
	resp, err := g.Client().Do(g.request(t.Context(), "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`))
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Contains(t, g.log.String(), "control character in the header X-Request-Id")
}
