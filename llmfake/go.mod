module github.com/llmhttp/llmhttp/llmfake

go 1.26.0

// Until the root has a release.
replace github.com/llmhttp/llmhttp => ..

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/llmhttp/llmhttp v0.0.0
	github.com/rivo/uniseg v0.4.7
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/tools v0.52.0
)

require (
	golang.org/x/text v0.14.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)
