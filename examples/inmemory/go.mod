module github.com/llmhttp/llmhttp/examples/inmemory

go 1.26.0

// The example is of the same commit as what it shows. Nobody imports it.
replace (
	github.com/llmhttp/llmhttp => ../..
	github.com/llmhttp/llmhttp/console => ../../console
	github.com/llmhttp/llmhttp/llmfake => ../../llmfake
	github.com/llmhttp/llmhttp/sqlstore => ../../sqlstore
)

require (
	github.com/llmhttp/llmhttp v0.0.0
	github.com/llmhttp/llmhttp/console v0.0.0
	github.com/llmhttp/llmhttp/llmfake v0.0.0
)

require (
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	golang.org/x/text v0.41.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
