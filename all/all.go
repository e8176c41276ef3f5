// Package all has the routes of all endpoints that are packages of this module, for servers that
// forward whatever a Backend can do:
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Routes: all.Routes(nil)})
//
// A server that needs few of them mounts those of their packages, such as [rerank.Routes]. A later
// version may have more routes: NewHandler panics if one has a path of the host's own, and names both.
package all

import (
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// Routes returns new Routes for Options.Routes. A Backend that does not have the method that one of
// them needs gets a 404 for it. files keeps the files of their requests; nil means a new one. Routes panics
// if Validate of files fails.
func Routes(files *form.Store) []llmhttp.Route {
	if files == nil {
		files = new(form.Store)
	}
	return slices.Concat(
		audio.Routes(&audio.Options{Files: files}), completion.Routes(), imageedit.Routes(&imageedit.Options{Files: files}),
		moderation.Routes(), rerank.Routes(),
	)
}
