package form_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

const contentType = "multipart/form-data; boundary=B"

// serve returns a Handler whose path /v1/own serve serves.
func serve(f func(c *llmhttp.Call) error) http.Handler {
	return llmhttp.NewHandler(&memory.Backend{}, llmhttp.AllowAll(""), &llmhttp.Options{
		Logger: slog.New(slog.DiscardHandler),
		Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Scope: "own"}, f)},
	})
}

// post sends a body to a Handler.
func post(h http.Handler, contentType, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/own", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	h.ServeHTTP(w, r)
	return w
}

// scan returns a form with a note and, if file is not empty, a file.
func scan(file string) string {
	body := "--B\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nNote: \r\n"
	if file != "" {
		body += "--B\r\nContent-Disposition: form-data; name=\"scan\"; filename=\"a.txt\"\r\n\r\n" + file + "\r\n"
	}
	return body + "--B--\r\n"
}

// replyWith replies with text and the content of file.
func replyWith(c *llmhttp.Call, text string, file *llm.File) error {
	content, err := io.ReadAll(file.Open())
	if err != nil {
		return err
	}
	return c.Reply("text/plain", func(b []byte) ([]byte, error) { return append(append(b, text...), content...), nil })
}

// A file is there until the request has ended, and its place in the Store too, whatever the end is.
func TestStore_Read(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		store := &form.Store{MaxFiles: 10, MaxTotal: 128 << 10, Dir: dir} // of two files
		require.NoError(t, store.Validate())
		var kept *llm.File
		var fail func() error
		h := serve(func(c *llmhttp.Call) error {
			var text string
			err := store.Read(c, []string{"scan"}, func(f *form.Form) (err error) {
				if kept, err = f.File("scan"); err != nil {
					return err
				}
				if kept == nil {
					return llm.Errorf(400, "", "There is no scan.")
				}
				text = f.Values["note"][0]
				return nil
			})
			if err != nil {
				return err
			}
			if err := fail(); err != nil {
				return err
			}
			return replyWith(c, text, kept)
		})
		works := func() error { return nil }
		for name, tt := range map[string]struct {
			contentType, body string
			fail              func() error
			status            int
		}{
			"works":        {contentType, scan("text"), works, 200},
			"no file":      {contentType, scan(""), works, 400},
			"two files":    {contentType, scan("a")[:len(scan("a"))-len("--B--\r\n")] + scan("b"), works, 400},
			"too large":    {contentType, scan(strings.Repeat("x", 11)), works, 413},
			"no form":      {"application/json", scan("text"), works, 415},
			"host fails":   {contentType, scan("text"), func() error { return io.ErrUnexpectedEOF }, 500},
			"host panics":  {contentType, scan("text"), func() error { panic("x") }, 500},
			"host refuses": {contentType, scan("text"), func() error { return llm.Errorf(422, "", "No.") }, 422},
		} {
			fail = tt.fail
			w := post(h, tt.contentType, tt.body)
			assert.Equal(t, tt.status, w.Code, "%s: %s", name, w.Body)
			if w.Code != 200 {
				continue
			}
			assert.Equal(t, "Note: text", w.Body.String())
			_, err := kept.Open().Read(make([]byte, 1))
			assert.ErrorIs(t, err, fs.ErrClosed, "the request is over")
		}
		if dir != "" {
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Empty(t, left)
		}
	}
}

// All requests in progress together have at most MaxTotal; one more is asked to come again.
func TestStore_MaxTotal(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		store := &form.Store{MaxTotal: 192 << 10, Dir: dir} // three blocks
		var inside func() *httptest.ResponseRecorder
		h := serve(func(c *llmhttp.Call) error {
			var file *llm.File
			err := store.Read(c, []string{"scan"}, func(f *form.Form) (err error) {
				file, err = f.File("scan")
				return err
			})
			if err != nil {
				return err
			}
			if ask := inside; ask != nil {
				inside = nil
				w := ask()
				return c.Reply("text/plain", func(b []byte) ([]byte, error) { return fmt.Append(b, w.Code), nil })
			}
			return replyWith(c, "", file)
		})
		large, small := strings.Repeat("x", 100<<10), "x" // two blocks and one
		inside = func() *httptest.ResponseRecorder { return post(h, contentType, scan(large)) }
		assert.Equal(t, "503", post(h, contentType, scan(large)).Body.String(), "two that are large at the same time")
		inside = func() *httptest.ResponseRecorder { return post(h, contentType, scan(small)) }
		assert.Equal(t, "200", post(h, contentType, scan(large)).Body.String(), "one large, one small")
		assert.Equal(t, 200, post(h, contentType, scan(large)).Code, "one after the other")
		assert.Equal(t, 413, post(h, contentType, scan(large+large)).Code, "more than all together may have is not for trying again")
	}
}

// The body may be no form.
func TestForm_Add(t *testing.T) {
	store := &form.Store{MaxFiles: 10}
	h := serve(func(c *llmhttp.Call) error {
		f := store.NewForm(c)
		var file *llm.File
		err := c.Body(func(body []byte) (err error) {
			var members struct{ Scan, Type string }
			if err := json.Unmarshal(body, &members); err != nil {
				return err
			}
			file, err = f.Add("scan", members.Type, base64.NewDecoder(base64.StdEncoding, strings.NewReader(members.Scan)))
			return err
		})
		if err != nil {
			return err
		}
		return replyWith(c, file.ContentType+":", file)
	})
	for body, want := range map[string]string{
		`{"scan":"dGV4dA==","type":"text/plain"}`: "200 text/plain:text",
		`{"scan":"dGV4dA=="}`:                     "200 :text",
		`{"scan":"dGV4dA==","type":"text/"}`:      `400 scan`,
		`{"scan":"dGV4dHRleHR0ZXh0dGV4dA=="}`:     `413 `,
		`{"scan":"*"}`:                            `500 `,
	} {
		w := post(h, "application/json", body)
		got := w.Body.String()
		if w.Code != 200 {
			var e struct{ Error struct{ Param string } }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
			got = e.Error.Param
		}
		assert.Equal(t, want, fmt.Sprint(w.Code, " ", got), body)
	}
}

func TestStore_Validate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, s := range []*form.Store{{Dir: dir + "/none"}, {Dir: file}} {
		err := s.Validate()
		require.ErrorContains(t, err, "Store.Dir")
		h := serve(func(c *llmhttp.Call) error {
			return s.Read(c, []string{"scan"}, func(*form.Form) error { return nil })
		})
		assert.Equal(t, 500, post(h, contentType, scan("x")).Code)
	}
	require.NoError(t, new(form.Store).Validate())
}
