// Package ownstore has stores of a host's own on database/sql, here with SQLite: a [UsageStore], and
// [Keys], a KeyStore with limits.
//
//	h := llmhttp.NewHandler(backend, &ownstore.Keys{DB: db}, &llmhttp.Options{Usage: usage})
//
// Package sqlstore is what is ready to use. These are for a host that has customers, keys or usage in
// tables of its own.
package ownstore
