package main

import (
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// withChi mounts the API behind chi's usual middleware: its Recoverer lets
// pass what cuts a failed stream.
func withChi(api http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Logger, middleware.Recoverer)
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, home) })
	r.Mount("/v1", api) // which sees the whole path
	return r
}
