// Package upstream provides a [Backend] that forwards requests to another server of the same API: a
// hosted service, a model server or another llmhttp.
//
//	b, err := upstream.New("https://models.example.com/v1", &upstream.Options{Key: os.Getenv("MODELS_KEY")})
//	if err != nil {
//		log.Fatal(err)
//	}
//	h := llmhttp.NewHandler(b, keys, &llmhttp.Options{Routes: all.Routes(nil)}) // of package all
//
// # Requests
//
// The server gets every parameter of a request, including those that llmhttp does not know, but not
// the key of the client. It is asked for a stream if the client wants one, and always for the
// usage.
//
// # Replies
//
// A reply is read by its content, not by its Content-Type: a server may stream
// although it was not asked to, or send a whole reply although it was. Members
// that llmhttp does not know are kept in Extra at every level. Members that are
// null, missing or of another type than usual are accepted where that loses
// nothing. The model has the name that the client used, except in members that
// llmhttp does not know.
//
// The usage is recognized under the names and in the places that several servers have for it, such as cached_tokens
// beside prompt_tokens, choices[0].usage and x_groq.usage. One that is not recognized is logged, and the record of the request
// has an estimate.
//
// The server is asked not to compress replies. One that it compresses nevertheless, with gzip or deflate, is
// read; the bounds hold for its content.
//
// Reasoning may have the name "reasoning_content" or "reasoning", and details, or be parts of the content. The
// reasoning of earlier turns is sent back under the name that the server uses: see
// Options.ReasoningName.
//
// These are errors: a stream that ends with neither a finish_reason nor [DONE],
// an error with the status 200, a redirect, and a reply that is incomplete, too
// large or not valid JSON.
//
// When the client leaves, the request to the server is cancelled. A stream whose usage is due, such as
// that of a chat after a finish_reason, is read on for it first: see Options.ReadOn.
//
// # Errors
//
// The client gets an [llm.Error] with the status, message, param and code of the server if it
// can act on it: for a status of 400, 413, 422 and 429, and for a model that does not exist. The
// client gets no details of any other error, only a status of 502, 503 or 504. In both cases Err is
// an [*Error] for logs, from which keys and the address of the server are removed.
//
// A prompt that is too long has the status 400 and the code "context_length_exceeded", in whichever words
// the server says so. Codes that are numbers are for logs only. An error that the server sends
// with the status 200, whole or in a stream, is treated as one with the status that its code means.
//
// A request is sent once. It is repeated only where [http.Transport] knows that
// the server has not processed it, such as on a stale connection.
package upstream
