// Package invalid makes an *llm.Error of what package param says, for packages that stand above package llm.
package invalid
