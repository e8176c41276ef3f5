// Pictures alone: a module of their own is not downloaded with the library.
module github.com/llmhttp/llmhttp/docs/agents

go 1.26.0
