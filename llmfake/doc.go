// Package llmfake is a fake of the servers of language models, for tests of programs that call
// them: in Go with this package, in any language with the command llmfake.
//
//	func TestGreet(t *testing.T) {
//		srv := llmfake.NewServer(t)
//		srv.Reply(llmfake.Text("Hello, Ada!"))
//		client := openai.NewClient(option.WithBaseURL(srv.OpenAIURL()), option.WithAPIKey("test"))
//
//		greeting, err := greet(t.Context(), client, "Ada")
//
//		require.NoError(t, err)
//		require.Equal(t, "Hello, Ada!", greeting)
//		srv.Request(0).WantUserText("Ada")
//	}
//
// A [Server] serves chat completions, completions of prompts, the Responses API, Anthropic's
// Messages API, embeddings, images, speech, rerank, moderations and the model list with an
// [llmhttp.Handler]. So it is as strict as a real server: a request that is not valid gets the error that a real server sends.
//
// # Reaching the server
//
// There are three ways. A program that reads OPENAI_BASE_URL or ANTHROPIC_BASE_URL, as the
// official SDKs do, needs only [Server.Setenv]. A client with a base URL gets
// [Server.OpenAIURL] or [Server.URL]. A client that takes an http.Client gets [Server.Client],
// which needs neither a network nor a base URL, and works in a bubble of [testing/synctest],
// where retries and slow replies take no time.
//
// # Replies
//
// Without a reply of the test, a simulated model replies: it repeats the user's text, calls the
// tools that it is offered with arguments that their schemas allow, makes values for the JSON
// schema of a response format, computes embeddings, ranks documents, finds harmful texts by their words,
// draws images, and speaks in tones. It is in package simulator.
//
// [Server.Reply] queues replies for the next requests, [Server.When] gives replies to requests
// that matchers select, and [Server.Always] replies to all others. Then a chat request for
// which there is no reply fails the test, and so does a reply that no request has got. The
// messages say what came and what was expected.
//
// A [Reply] is a value, such as
//
//	llmfake.Reason("Rain?").Text("I will look.").Call("forecast", args).Usage(12, 30)
//
// It can be given in any format, whole and streamed. The token limit and the stop sequences of a
// request cut it, as they would cut the reply of a model.
//
// # Faults
//
// [Fail], [RateLimited], [Overloaded] and [ContextLengthExceeded] are errors in the format of
// the request. [Wait], [Hang], [Reply.Break], [Reply.Cut], [Reply.NoEnd], [Reply.Malformed],
// [Reply.BadToolIndices], [HTML], [Reply.Rewrite] and [Raw] are what a good server does not do.
// [Server.Limit] enforces real rate limits. [Server.Chaos] makes requests fail at random, with a
// seed that a failure names. Load profiles for agents and gateways are a [Pace], which has the time
// to the first token, the tokens a second and their jitter, and a Chaos for the errors.
//
// # Requests
//
// [Server.Requests] has what the program has sent: decoded and as bytes. The methods of
// [Request] whose names begin with Want check it.
//
// # Record and replay
//
// [NewReplay] returns a Server that replies from a cassette: a file with requests and replies
// that a real server has given once. See there.
//
// # Files
//
// [Server.Load] reads replies and rules from a JSON or YAML file, as the command does.
package llmfake
