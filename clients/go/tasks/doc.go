// Package tasks has ten tasks of somebody who tests a program that calls models, done with
// package llmfake, with go-vcr and with net/http/httptest. clients/node/tasks has them with
// aimock. TestLines writes docs/llmfake-compared.md, which has the number of lines of each.
package tasks
