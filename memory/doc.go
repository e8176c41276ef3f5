// Package memory implements the interfaces of package llmhttp in memory, for
// development, examples and tests. Everything is lost when the process ends.
//
//	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-test"), &llmhttp.Options{Usage: memory.NewUsageStore()})
//
// [Backend] takes the place of a model: it repeats the user's text. [Scripted] returns a Backend
// whose replies a test defines step by step. A model that calls tools and makes values for JSON
// schemas is in package llmfake/simulator.
//
// [KeyStore], [UsageStore], [ResponseStore] and [ImageStore] are stores. The memory
// of a KeyStore grows with the keys that are added; that of the others is bounded.
package memory
