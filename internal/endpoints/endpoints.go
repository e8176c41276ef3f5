// Package endpoints lists the endpoints that this module ships, so that what must know all of them
// need not import their packages. It imports nothing of them, of the root package and of llm.
//
// # Adding an endpoint
//
// A new endpoint is a package of its own, whose name is a noun that no function of package route or the
// root has. Copy package rerank; moderation is one whose input is a text or a list. These are the files:
//
//	rerank/rerank.go                 upstream/rerank.go      llmfake/simulator/rerank.go
//	rerank/types.go                  route/operations.go     llmhttptest/backend.go
//	internal/endpoints/endpoints.go  textfilter/rerank.go    llmhttptest/backend_rerank.go
//	all/all.go                       llmfake/rerank.go       llmfake/simulator/backend.go
//
// In this order:
//
//  1. The package: the types with their tables of JSON, Validate and CheckReply, the interface of its
//     Backends, the Endpoint, Routes, and a Serve for Protocols. Package wire decodes. A function counts
//     each text of the request. A member user stays in Extra, and EndUser reads it for the Estimate. Units
//     other than tokens go into the Units of Estimate and Used.
//  2. An element of [All], a line in all.Routes, and the package in LIBRARIES (Makefile) and both loops of
//     scripts/floors.sh.
//  3. A file each in upstream and in textfilter, which tells where the texts of the request and the reply
//     are; a row and the method in route/operations.go. If requiredParams (route/params.go) lacks a
//     member without which a request has no meaning, add it.
//  4. A file in llmfake: the Matcher, which has the name of the operation, and the method, which tells
//     playOther what Request.UserText finds. A reply that scripts can have needs a line in
//     scriptstep.go. In llmfake/simulator, a file with the method, and lines in backend.go.
//  5. A file in llmhttptest: an operation with the checks of Backends and of guards. In backend.go, a model in
//     BackendOptions and a word in operations. Each check needs a mutant: see
//     backend_rerank_mutants_test.go.
//  6. Tests: JSON, parameters and replies in the package; an element of abilities (abilities_test.go) and of
//     testOperations, and a method of stubBackend (helpers_test.go), from which the tests of faults,
//     limits, records, scopes and members follow; methods of package modeltest, and multimodal
//     (route/images_test.go). Tests fail until they are there. These find the rest:
//     grep -rnwiE 'rerank|moderations?' --include=*_test.go . clients
//     grep -rniE 'rerank|moderation' --include=*.go --include=*.md .
//  7. Documents: the endpoints, Backends and packages in README.md, docs/wire-format.md, and lists of
//     operations in docs.
//
// The lists of scopes and operations, the console, llmhttpctl, the texts of a 404, and which targets of a
// Router support the operation follow from All. Keys, limits, prices and records follow from the Reserve
// and the Ask of a Call.
//
// A text or a list of texts is an llm.StringList. A member of the JSON that is neither a number, a string, a
// struct nor a list needs a type with the methods of jsonwire.Type, as inputType in moderation/types.go. In
// package route an operation is a oneShot, or a streaming if its reply comes in pieces. Such a reply
// is a ReplyStream (audio/speech.go); one that is the stream of a chat is sent by Call.Generate
// (completion/completion.go); a form is read by a form.Store (audio/transcription.go).
package endpoints

import (
	"context"
	"slices"
)

// Root is the path of the root package, whose endpoints every Handler serves. The others are
// served if the host mounts them.
const Root = "github.com/llmhttp/llmhttp"

// An Endpoint is what clients call to have one thing done, in one wire format.
type Endpoint struct {
	Name      string   // for people
	Patterns  []string // methods and paths, as those of llmhttp.Route; none exists only for some requests
	Scope     string
	Operation string // empty if no model is called
	Package   string // its path

	// Supported reports whether a Backend has the method that the endpoint calls. Register sets it, in
	// programs that link the package. It is nil for those of Root, and for formats of chats.
	Supported func(ctx context.Context, backend any) bool
}

// All are the endpoints, in the order in which programs show their scopes and operations. It does
// not change after the initialization of packages.
//
// To move an endpoint into a package of its own, set its Package here, and call Register in an init
// function of the package.
var All = []Endpoint{
	{Name: "chat completions", Patterns: []string{"POST /v1/chat/completions"}, Scope: "chat", Operation: "chat", Package: Root},
	{Name: "messages", Patterns: []string{"POST /v1/messages"}, Scope: "chat", Operation: "chat", Package: Root + "/messages"},
	{Name: "token counts of messages", Patterns: []string{"POST /v1/messages/count_tokens"}, Scope: "chat", Package: Root + "/messages"},
	{Name: "responses", Patterns: []string{"POST /v1/responses"}, Scope: "chat", Operation: "chat", Package: Root + "/responses"},
	{Name: "summaries of responses", Patterns: []string{"POST /v1/responses/compact"}, Scope: "chat", Operation: "chat", Package: Root + "/responses"},
	{Name: "token counts of responses", Patterns: []string{"POST /v1/responses/input_tokens"}, Scope: "chat", Package: Root + "/responses"},
	{
		Name: "stored responses", Scope: "chat", Package: Root + "/responses",
		Patterns: []string{
			"GET /v1/responses/{id}", "DELETE /v1/responses/{id}", "GET /v1/responses/{id}/input_items", "POST /v1/responses/{id}/cancel",
		},
	},
	{Name: "completions", Patterns: []string{"POST /v1/completions"}, Scope: "completions", Operation: "completions", Package: Root + "/completion"},
	{Name: "images", Patterns: []string{"POST /v1/images/generations"}, Scope: "images", Operation: "images", Package: Root},
	{Name: "image edits", Patterns: []string{"POST /v1/images/edits"}, Scope: "images", Operation: "image_edits", Package: Root + "/imageedit"},
	{Name: "embeddings", Patterns: []string{"POST /v1/embeddings"}, Scope: "embeddings", Operation: "embeddings", Package: Root},
	{Name: "speech", Patterns: []string{"POST /v1/audio/speech"}, Scope: "speech", Operation: "speech", Package: Root + "/audio"},
	{
		Name: "transcriptions", Scope: "transcriptions", Operation: "transcriptions", Package: Root + "/audio",
		Patterns: []string{"POST /v1/audio/transcriptions", "POST /v1/audio/translations"},
	},
	{
		Name: "rerank", Scope: "rerank", Operation: "rerank", Package: Root + "/rerank",
		Patterns: []string{"POST /v1/rerank", "POST /v2/rerank", "POST /rerank"},
	},
	{Name: "moderations", Patterns: []string{"POST /v1/moderations"}, Scope: "moderations", Operation: "moderations", Package: Root + "/moderation"},
	{Name: "models", Patterns: []string{"GET /v1/models", "GET /v1/models/{id...}"}, Scope: "models", Package: Root},
	{
		Name: "usage", Scope: "usage", Package: Root,
		Patterns: []string{
			"GET /v1/dashboard/billing/usage", "GET /dashboard/billing/usage",
			"GET /v1/dashboard/billing/subscription", "GET /dashboard/billing/subscription",
		},
	},
}

// Register sets Supported of the endpoint of an operation: has finds the method that it calls in a
// Backend, which is a B. It must be called in the init function of the package of the endpoint: no
// Backend has the method if the program does not link that. It panics if All does not have just one
// endpoint with the operation, or if that is of Root or was registered before.
func Register[B any](operation string, has func(ctx context.Context, b B) bool) {
	isIt := func(e Endpoint) bool { return operation != "" && e.Operation == operation }
	i := slices.IndexFunc(All, isIt)
	if i < 0 || All[i].Package == Root || All[i].Supported != nil || slices.ContainsFunc(All[i+1:], isIt) {
		panic("endpoints: not an operation of one package, or registered twice: " + operation)
	}
	All[i].Supported = func(ctx context.Context, backend any) bool {
		b, ok := backend.(B)
		return ok && has(ctx, b)
	}
}

// Supported reports whether a Backend has the method of an operation that was registered.
func Supported(ctx context.Context, operation string, backend any) bool {
	for i := range All {
		if e := &All[i]; e.Operation == operation && e.Supported != nil {
			return e.Supported(ctx, backend)
		}
	}
	return false
}
