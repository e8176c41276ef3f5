// Package route provides a Backend that distributes requests over other Backends.
//
// A [Router] sends each request to one of the targets of the route for its model. If that target
// fails, it tries another:
//
//	router, err := route.New([]route.Route{
//		{Model: "chat-large", Strategy: route.InOrder, Targets: []route.Target{
//			{Name: "ours", Backend: ours, Model: "llama-70b"},
//			{Name: "hosted", Backend: hosted, Model: "gpt-large"},
//		}},
//		{Model: "hosted/*", Targets: []route.Target{{Name: "hosted", Backend: hosted, Model: "*"}}},
//	}, nil)
//
// A try is one request to one target. A round tries each target at most once.
//
// # Fallback
//
// A try fails if the target does not answer in time, or answers with an error that is not an
// [llm.Error] or that has status 408 or 5xx. After a failed try the Router tries the next
// target immediately. It does the same after a 429, and when the target does not know the model or
// does not support the request. Every other error goes to the client at once, because another
// target would answer the same. [Options].Fallback decides otherwise, for example for prompts that
// are too long for a target: see [IsContextLength].
//
// When all targets have been tried, a new round begins after a backoff, which has random jitter and
// doubles with each round. A target that sent a RetryAfter is not tried again earlier. [Options]
// and the deadline of the request's context limit the tries, the rounds and the waiting.
//
// A reply that has begun is never replaced: if the target fails in mid-stream, the client gets the
// error. A reply begins with the first chunk that has content: text, reasoning, a tool call, a
// finish reason, usage or a member of a choice's Extra. Up to 16 chunks before it, which at most
// announce the role, are held back so that another target can still take over.
//
// If no target answers, the client gets the 429 with the shortest RetryAfter, or else the last
// failure, or else the last error for which Fallback has tried another target, or else a 404 for an
// unknown model.
//
// Usage of a try that has failed is not recorded, even if the target charges for it; a host can do that:
// see [llmhttp.UsageRecord]. Each try gets a copy of the request, apart from strings, because a target may
// change it. Tries of one request never overlap. To send a request to several targets in
// parallel (hedging), use a Backend that does so as a target.
//
// # Requests and targets
//
// Target.Allow keeps a target from some requests. Target.Params says what happens to parameters
// that the model of a target does not take. With the strategy [Affinity] the requests of a session
// go to the same target. [Router.Update] replaces the routes while requests run.
//
// # Circuit breakers
//
// Each target has a circuit breaker for each model, identified by the target's name of the model.
// Consecutive failures open it, and the target gets no requests for the model. After a while the
// breaker is half-open: one request at a time is let through to find out whether the target works
// again.
//
// A stream that breaks off is a failure too. These are not failures of the target:
//
//   - a 429 and every other answer that is not a failed try;
//   - an error for which an upstream.Error has a status of 4xx, because the
//     server refused this request. The statuses 401, 402, 407 and 408 are failures;
//   - the end of a try because the client left.
//
// A client may provoke failures. So failures of requests of one account (see
// [llmhttp.Key]) open the breaker for that account only. If a request of another
// account fails as well, the breaker is open for all. Requests without a Key
// count as those of several accounts. A Router cannot tell a request that makes every target fail from
// targets that fail, so somebody with two accounts can open a breaker for all.
//
// A breaker opens only while another target of the route has a closed one. If no
// target with a closed breaker can answer, for example because none of them knows
// the model, the request is sent to a target whose breaker is open.
//
// A target keeps the breakers of up to 256 models. It forgets the least recently used
// ones, and closed ones before others. [Router.Status] reports the breakers that are
// not closed; Options.Logger gets a message when one opens or closes.
//
// A target that sent a RetryAfter with a 429, 408 or 5xx is resting for that
// time: new requests for the model use it only if no other target can be used.
//
// Each target of each route has its own breakers and its own count of requests in flight, even if
// several targets share a Backend.
package route
