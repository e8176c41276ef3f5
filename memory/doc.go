// Package memory is for development, examples and tests: it implements the
// interfaces of llmhttp in memory, and forgets everything when the process
// ends.
//
// [Backend] stands in for a model. It is deterministic: it repeats what it is
// told, calls the tools it is given, fills in the schemas it is asked to
// follow, draws, embeds, and counts its tokens exactly. [Scripted] makes one
// that says, or fails, as a test wants it to.
//
// [KeyStore], [Usage] and [Images] are the stores of a host that needs no
// others. Their memory is bounded, KeyStore's by what its host adds.
package memory
