package main

import (
	"io"
	"log/slog"
	"net/http"
	"time"
)

// withNetHTTP needs nothing but a pattern that ends in a slash.
func withNetHTTP(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, home) })
	return accessLog(mux)
}

// accessLog is a middleware that wraps the ResponseWriter, as many do.
func accessLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		rec := &statusRecorder{ResponseWriter: w}
		// Deferred, since a stream that fails ends in a panic, and not recovered.
		defer func() {
			slog.Debug("served", "method", r.Method, "path", r.URL.Path, "status", rec.status, "took", time.Since(began))
		}()
		next.ServeHTTP(rec, r)
	})
}

type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is how the Handler finds what flushes, and so streams.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
