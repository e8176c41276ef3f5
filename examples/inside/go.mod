module github.com/llmhttp/llmhttp/examples/inside

go 1.26.0

// The example is of the same commit as what it shows. Nobody imports it.
replace (
	github.com/llmhttp/llmhttp => ../..
	github.com/llmhttp/llmhttp/console => ../../console
	github.com/llmhttp/llmhttp/otelllm => ../../otelllm
	github.com/llmhttp/llmhttp/sqlstore => ../../sqlstore
)

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/llmhttp/llmhttp v0.0.0
	github.com/llmhttp/llmhttp/console v0.0.0
	github.com/llmhttp/llmhttp/otelllm v0.0.0-00010101000000-000000000000
	github.com/rs/cors v1.11.1
	github.com/rs/zerolog v1.35.1
	github.com/stretchr/testify v1.12.1
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.72.0
	go.opentelemetry.io/otel/sdk v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	go.uber.org/zap v1.28.0
	go.uber.org/zap/exp v0.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
