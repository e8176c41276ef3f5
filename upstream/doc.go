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
// usage. The exception is cache_control, the mark of what is to be cached, which only a server gets that knows it: see
// Options.CacheControl.
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
// Replies are decoded and encoded again, so the order of members and the form of numbers may change. These
// differences remain:
//
//   - Content in parts becomes a string. Parts other than text and reasoning are passed on as
//     content_parts, which clients do not know.
//   - A reply that has "reasoning" has "reasoning_content" too for clients of chat completions, which know
//     one or the other, so a stream sends the text twice.
//   - A stream that ends with [DONE] but without a finish_reason is complete: servers that write [DONE]
//     after a failure cannot be told from those that leave out the finish_reason.
//   - Members of chunks after the last choice are sent with the usage, to clients that asked for it. Others
//     get no chunk without choices, because many read the first choice of every chunk.
//   - The name and tool_call_id of a message are passed on in streams only.
//   - Unknown members of an entry of data in an embeddings reply are dropped, members of meta other than
//     the units and tokens in a reply to rerank, and categories of a moderation that are null or of
//     another type.
//   - llama.cpp and Ollama list no capabilities of models, and vLLM neither. Versions of llama.cpp that
//     list only n_ctx_train may run with less than that. A wrapper's ListModels can tell clients.
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
// A 429 with the code insufficient_quota becomes a 502, because it is the operator's account that is used
// up. A 404 means an unknown model if the code, param or message says so. Otherwise, for a chat, it is a
// 400 if its type is invalid_request_error and its message mentions no URL, and else a 502, because
// the base URL is probably wrong; for other operations the server does not have the endpoint.
//
// What the client gets of an error may reveal whose server it is. Keys, the address of the server and what
// looks like either are removed, and the server's name of the model is replaced. Not removed are keys of
// less than 8 bytes, host names without a dot unless a port follows, names of other hosts, and IPv6
// addresses without brackets, because these may be ordinary words. In members of a reply that llmhttp does
// not know, the server's name of the model stays; in the list of models it is replaced or its member
// removed, unless the name consists of letters only.
//
// A request is sent once. It is repeated only where [http.Transport] knows that
// the server has not processed it, such as on a stale connection.
package upstream
