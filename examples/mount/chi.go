package main

import (
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// withChi mounts the API behind chi's usual middleware. Recoverer does not
// recover from http.ErrAbortHandler, with which the API ends a failed stream.
func withChi(api http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Logger, middleware.Recoverer)
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, homePage) })
	r.Mount("/v1", api) // Mount does not strip /v1 from the URL
	return r
}
