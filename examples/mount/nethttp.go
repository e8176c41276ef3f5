package main

import (
	"io"
	"log/slog"
	"net/http"
	"time"
)

// withNetHTTP mounts the API with a pattern that ends in a slash.
func withNetHTTP(api http.Handler, prefix string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(prefix+"/v1/", api)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, homePage) })
	return logAccess(mux)
}

// logAccess is middleware that wraps the ResponseWriter.
func logAccess(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: w}
		// The Handler ends a failed stream with a panic, so this is deferred.
		defer func() {
			slog.Debug("served", "method", r.Method, "path", r.URL.Path, "status", recorder.status, "duration", time.Since(start))
		}()
		next.ServeHTTP(recorder, r)
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

// Unwrap lets http.ResponseController find the Flush method that streams need.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
