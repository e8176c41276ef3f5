package llmhttp

import (
	"io"

	"github.com/llmhttp/llmhttp/internal/audiolength"
	"github.com/llmhttp/llmhttp/llm"
)

// An audioMeter measures a recording.
type audioMeter struct {
	meter audiolength.Meter
	size  int64 // in bytes
}

// bytesPerPCMSecond is the rate of recordings in the format pcm: see SpeechRequest.
const bytesPerPCMSecond = 24_000 * 2

// add adds the next bytes of the recording.
func (m *audioMeter) add(audio []byte) {
	m.size += int64(len(audio))
	m.meter.Write(audio)
}

// millis returns the length of the recording in milliseconds, rounded up. If it cannot be measured, it
// is an estimate by the size that is hardly ever too short: one byte for each, which is 8 kbit/s.
func (m *audioMeter) millis() (n int64, estimated bool) {
	if d, known := m.meter.Length(); known {
		return millis(d.Seconds()), false
	}
	return m.size, m.size > 0
}

// fileMillis returns the length of a recording as audioMeter does.
func fileMillis(f *llm.File) int64 {
	var m audioMeter
	if _, err := io.Copy(&m.meter, f.Open()); err != nil {
		return f.Size
	}
	m.size = f.Size
	n, _ := m.millis()
	return n
}

// audioTokens estimates the tokens of audio that a model has made, as OpenAI counts those of its
// models: one for each 50 ms (https://platform.openai.com/docs/guides/realtime-costs).
func audioTokens(millis int64) int64 { return (millis + 49) / 50 }
