module github.com/llmhttp/llmhttp

go 1.26.0
