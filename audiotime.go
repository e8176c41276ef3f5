package llmhttp

// boundAudio returns how many milliseconds a recording of a size in bytes has at most, if its length is
// not known: speech is rarely stored with less than 8 kbit/s.
func boundAudio(size int64) int64 { return size }

// audioTokens estimates the tokens of audio that a model has made, as OpenAI counts those of its
// models: one for each 50 ms (https://platform.openai.com/docs/guides/realtime-costs).
func audioTokens(millis int64) int64 { return (millis + 49) / 50 }
