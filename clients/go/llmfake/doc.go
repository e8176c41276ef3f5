// Package llmfake contains tests of the official SDKs against package llmfake: what they make of
// valid replies, and of faults.
package llmfake
