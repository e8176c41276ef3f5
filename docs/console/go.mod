// Pictures alone: a module of their own is not downloaded with the library.
module github.com/llmhttp/llmhttp/docs/console

go 1.26.0
