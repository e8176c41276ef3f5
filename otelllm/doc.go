// Package otelllm observes an [llmhttp.Handler] with OpenTelemetry, by the
// semantic conventions for generative AI.
//
// It depends only on the API of OpenTelemetry. The host chooses an SDK and
// exporters:
//
//	telemetry, err := otelllm.New(&otelllm.Options{ProviderName: "acme"})
//	...
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Observe: telemetry.Observe})
//	server.Handler = otelhttp.NewHandler(h, "llmhttp",
//		otelhttp.WithPropagators(propagation.TraceContext{}),
//		otelhttp.WithMeterProvider(noop.NewMeterProvider()))
//
// # Spans
//
// otelhttp makes the span of the HTTP request. It reads the traceparent of the client
// only if it has a propagator: that of the option above or of
// [go.opentelemetry.io/otel.SetTextMapPropagator]. Its metrics have the Host header,
// which clients choose, as an attribute; the other option turns them off.
//
// The child "chat MODEL" of that span begins when the request is admitted, with the
// arrival of the request as its start, and is the parent of what the Backend does. If
// the model is not known and the request fails, its name is "chat". Without otelhttp it
// has the kind INTERNAL too, and no parent.
//
// Each try at a target, which a route.Router makes, is a child of that with the
// kind CLIENT; its context reaches the target, so that an instrumented
// [net/http.Transport] sends the try's traceparent. A request that is refused
// before the Backend is called has no span of its own: the span of the HTTP request
// gets error.type, llmhttp.limit and llmhttp.limit.subject, which is the kind of the subject
// whose limit it is. otelhttp gives the span of a stream that is cut
// the name "POST", without a status. Stop sequences and the reasoning effort, which
// clients choose, are cut to 256 bytes.
//
// # Metrics
//
// The metrics are listed in docs/metrics.md. Their attributes have few values:
// what a client chooses never becomes one, except for the names of models in the
// list of Options.Models, or without such a list the first 100 names of requests
// that succeeded and of their replies. Other names become "_OTHER". Tokens that the
// Handler estimated are not in gen_ai.client.token.usage, but in llmhttp.spend.
//
// llmhttp.spend is what requests cost by model, in the currency of Options.Price of the
// Handler, and by account if Options.Accounts is true: the first 1,000 accounts are attributes.
// llmhttp.usage.unpriced counts the records that are missing in it.
//
// Requests whose traces are not sampled are recorded in batches of 16, without their
// context, and at the latest when the metrics are collected: the function that observes
// llmhttp.requests.active does it. Without that instrument, as many as 15 requests are
// recorded later.
//
// # Content
//
// Messages and replies are not recorded unless Options ask for them: on spans with
// CaptureContent, as events with ContentEvents, or given to a ContentHook, which may
// upload them. They are bounded by Options.ContentLimit, and contain no images,
// audio, files or API keys.
package otelllm
