module github.com/llmhttp/llmhttp/examples/gateway

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/klauspost/compress v1.20.4
	github.com/llmhttp/llmhttp v0.0.0
	github.com/llmhttp/llmhttp/responsesws v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/time v0.16.0 // indirect
)

// The example is of the same commit as what it shows. Nobody imports it.
replace (
	github.com/llmhttp/llmhttp => ../..
	github.com/llmhttp/llmhttp/responsesws => ../../responsesws
)
