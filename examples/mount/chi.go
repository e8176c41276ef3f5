package main

import (
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// withChi mounts the API behind chi's usual middleware. Recoverer does not
// recover from http.ErrAbortHandler, with which the API ends a failed stream.
func withChi(api http.Handler, prefix string) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Logger, middleware.Recoverer)
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, homePage) })
	r.Mount(prefix+"/v1", api) // Mount does not change the URL
	return r
}
