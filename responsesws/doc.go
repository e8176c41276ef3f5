// Package responsesws serves OpenAI's Responses API over WebSockets, in front of a Handler that serves
// it over HTTP. Codex tries a WebSocket first, and the SDKs of OpenAI have a client for it.
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{
//		Protocols: []llmhttp.Protocol{responses.New(nil)},
//	})
//	ws := responsesws.New(h, nil)
//	server := &http.Server{Handler: ws}
//	server.RegisterOnShutdown(ws.Drain)
//	err := llmhttp.Serve(ctx, server, h, nil)
//
// A [Handler] accepts the upgrade of GET /v1/responses, also below a prefix, and passes every other request
// on. Each message response.create of a client becomes one request in process, POST /v1/responses with
// "stream": true, with the headers, the remote address and the context of the upgrade. The events of its
// stream become messages. So the Handler behind it finds the key, applies limits, records usage, tells its
// Observer and makes errors as it does for HTTP, and middleware between the two sees an HTTP request.
//
// # What the Handler behind it sees
//
//   - For each upgrade, GET /v1/responses with its headers. Package responses replies with a 426 to a request
//     whose key is valid: then the upgrade is accepted, with the headers x-* of that reply. The client gets
//     any other reply as it is, such as a 401. This counts as one request, and is not recorded as usage.
//   - For each response.create, POST /v1/responses. Without headers of the upgrade that are about the
//     connection or a body, and without Accept-Encoding and X-Request-Id. An llmhttp.Options.RequestID must
//     not take the ID from another header of the upgrade, because each message needs an ID of its own.
//   - For each response.create with "generate": false, which prepares a conversation and calls no model, POST
//     /v1/responses/input_tokens: the key, the model and the input are checked.
//
// When a client has left, the contexts of its requests end as those of HTTP do. The deadlines of the
// Handler apply to each message: a client that does not read loses its connection. A request that fails
// before its stream begins is a message {"type":"error","status":...,"error":{...},"headers":{...}}, and the
// connection goes on. So it does after a panic or a stream that breaks off, with the status 500.
//
// # Conversations
//
// A connection keeps the last response of each of its streams in memory: input and output. A
// previous_response_id that names one of them needs no store: the request gets the whole conversation as its
// input, and the response repeats the previous_response_id of the client. With any other ID, and for a response
// that was stored, the Handler gets the ID and looks it up in its store. What is kept is bounded: see
// Options.MaxHistory. Clients that get the error previous_response_not_found send the whole conversation.
//
// # Messages
//
// Clients may send response.create, in the form of the documentation of OpenAI's WebSocket mode, and
// response.processed, which Codex sends and which has no effect. Responses with the same stream_id, or without
// one, are made one after the other, and others at the same time. What is not known is answered by an error. There
// is no response.cancel: a client that wants no more closes the connection. A binary message closes it with
// the code 1003, and one that is too large with 1009.
//
// A connection that is too old, or has had too many responses, ends with the error
// websocket_connection_limit_reached and the code 1000 as soon as no response is in progress, and one that
// [Handler.Drain] ends with 1001.
//
// # Web pages
//
// Browsers send no API key with an upgrade, but cookies, and ask no server before. So an upgrade of a web page
// of another origin is refused with a 403 unless Options.TrustedOrigins has it, also if middleware finds a key
// in a cookie. Requests of programs have no Origin.
package responsesws
