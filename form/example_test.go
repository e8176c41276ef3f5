package form_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A Store reads the file of a form, which is there until the request has ended.
func ExampleStore_Read() {
	store := new(form.Store) // of all routes
	count := func(c *llmhttp.Call) error {
		var scan *llm.File
		err := store.Read(c, []string{"scan"}, func(f *form.Form) (err error) {
			if scan, err = f.File("scan"); err == nil && scan == nil {
				err = llm.Errorf(http.StatusBadRequest, "", "There is no scan.")
			}
			return err
		})
		if err != nil {
			return err
		}
		return c.Reply("text/plain", func(b []byte) ([]byte, error) { return fmt.Append(b, scan.Name, ": ", scan.Size, " bytes"), nil })
	}
	h := llmhttp.NewHandler(&memory.Backend{}, llmhttp.AllowAll(""), &llmhttp.Options{
		Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Scope: "own"}, count)},
	})

	body := "--B\r\nContent-Disposition: form-data; name=\"scan\"; filename=\"a.txt\"\r\n\r\nHello\r\n--B--\r\n"
	r := httptest.NewRequest(http.MethodPost, "/v1/own", strings.NewReader(body))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=B")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Body)
	// Output: a.txt: 5 bytes
}
