//go:build race

package llmhttp

// underRace tells that much takes long.
const underRace = true
