// Package memory implements the interfaces of package llmhttp in memory, for
// development, examples and tests. Everything is lost when the process ends.
//
// [Backend] simulates a model. It is deterministic: it repeats the
// user's text, calls the tools of the request, makes values that satisfy a
// requested JSON schema, draws images, computes embeddings, and counts tokens
// exactly. [Scripted] returns a Backend whose replies a test defines step by
// step.
//
// [KeyStore], [UsageStore], [ResponseStore] and [ImageStore] are stores. The memory
// of a KeyStore grows with the keys that are added; that of the others is bounded.
package memory
