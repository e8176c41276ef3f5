// Package route is a Backend that picks Backends.
//
// A [Router] sends each request to one of the targets that the route of its
// model has, and to another if that one fails:
//
//	router, err := route.New([]route.Route{
//		{Model: "chat-large", Strategy: route.InOrder, Targets: []route.Target{
//			{Name: "ours", Backend: ours, Model: "llama-70b"},
//			{Name: "hosted", Backend: hosted, Model: "gpt-large"},
//		}},
//		{Model: "hosted/*", Targets: []route.Target{{Name: "hosted", Backend: hosted, Model: "*"}}},
//	}, nil)
//
// # Fallback
//
// A target has failed if it did not answer in time, or with an error that is
// no [llmhttp.Error] or whose status is 408 or 5xx. Then, and when it answers
// 429 or does not know the model, the next target is tried at once. When each
// has been, those that failed are tried again after a while, which doubles from
// round to round and is drawn at random; a target that says when to come back
// is not asked before. All of it is bounded by [Options] and by the deadline of
// the request's context. Every other error is the client's to know, at once.
//
// A reply that has begun is never replaced: if it breaks off, the client is
// told. It has begun with the first chunk that says something: text, reasoning,
// a tool call, a finish reason, usage, or what a choice has in its Extra. Chunks
// that come before it, and announce the role at most, are kept back until then,
// up to 16 of them.
//
// If all fails, the client gets the 429 that asks for the shortest wait, or
// else the last failure, or else the 404 for a model that does not exist.
//
// Nothing is tried twice at the same time: there is no hedging, and targets do
// not race. A host that wants that puts a Backend in front which does it.
//
// # Targets that keep failing
//
// Each target has a circuit breaker. It opens when the target has failed some
// times in a row, and the target is left alone; then one request is let through
// to see whether it works again. A 429 or any other answer is no failure, and a
// client that leaves counts as nothing, whatever it has left. A reply that
// breaks off is a failure when it does. A request none of whose targets is to
// be asked gets a 503 that says when to try again: it is not sent to a target
// that is likely to keep it waiting. [Router.Status] tells how targets are
// doing, and Options.Logger is told when a breaker opens and closes.
//
// A target that said when to come back, with 429 or 503, is asked until then
// only if no other can be.
//
// Each route has targets of its own: the same Backend in two of them is two
// targets, each with its own breaker and its own count of requests in flight.
package route
