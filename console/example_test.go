package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/memory"
)

// A host with a sign-in of its own, which puts the name of the person into a
// header. The console asks it who sent a request.
func Example() {
	keys, usage, monitor := memory.NewKeyStore(), memory.NewUsageStore(), console.NewMonitor()
	api := llmhttp.NewHandler(memory.Echo(), console.NewKeyStore(keys), &llmhttp.Options{Usage: usage, Observe: monitor.Observe})

	c, err := console.New(keys, &console.Options{
		User: func(r *http.Request) (console.User, error) {
			switch name := r.Header.Get("X-Signed-In-As"); name { // which a proxy in front has verified
			case "":
				return console.User{}, console.ErrNoUser
			case "ada":
				return console.User{Name: name, Admin: true}, nil
			default:
				return console.User{Name: name, Account: name}, nil
			}
		},
		Usage:   usage,
		API:     api,
		Monitor: monitor,
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.Handle("/console/", c)

	for _, name := range []string{"", "grace", "ada"} {
		r := httptest.NewRequest("GET", "/console/overview", nil)
		r.Header.Set("X-Signed-In-As", name)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%q gets %d\n", name, w.Code)
	}
	// Output:
	// "" gets 403
	// "grace" gets 403
	// "ada" gets 200
}
