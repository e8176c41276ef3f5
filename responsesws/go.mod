module github.com/llmhttp/llmhttp/responsesws

go 1.26.0

require (
	github.com/coder/websocket v1.8.15
	github.com/llmhttp/llmhttp v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/time v0.16.0 // indirect
)

// It is of the same commit as the root until that has a version.
replace github.com/llmhttp/llmhttp => ../
