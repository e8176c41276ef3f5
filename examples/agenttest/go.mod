module github.com/llmhttp/llmhttp/examples/agenttest

go 1.26.0

require (
	github.com/llmhttp/llmhttp v0.0.0
	github.com/llmhttp/llmhttp/llmfake v0.0.0
	github.com/openai/openai-go/v3 v3.50.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
)

// Nobody else imports it: it is of the same commit as what it tests.
replace (
	github.com/llmhttp/llmhttp => ../..
	github.com/llmhttp/llmhttp/llmfake => ../../llmfake
)
